-- Acute diagnoses of the care plan and of admission, up to the prediction time.
-- Text traps: "septic arthritis" is no sepsis, SIRS alone is none, "respiratory arrest (without cardiac arrest)" and
-- "hemorrhage ... (for trauma see Trauma)" name what they are not, so admission diagnoses are matched at their start.
WITH found AS (
    SELECT stay, 'diagnosis' AS origin, lower(diagnosisstring) AS diagnosed
    FROM diagnosis JOIN cohort ON stay_id(patientunitstayid) = stay
    WHERE recent(diagnosisoffset, diagnosisoffset, until)
),
admitted AS (
    SELECT stay, 'admissionDx' AS origin, lower(admitdxname) AS reason, lower(admitdxpath) AS reason_path
    FROM admissionDx JOIN cohort ON stay_id(patientunitstayid) = stay
    WHERE known(admitdxenteredoffset, admitdxenteredoffset, until)
),
items AS (
    SELECT * FROM found UNION ALL BY NAME SELECT * FROM admitted
)
SELECT
    stay,
    flag((regexp_matches(diagnosed, 'sepsis|septic shock') AND diagnosed NOT LIKE '%signs and symptoms of sepsis%')
        OR reason LIKE 'sepsis%') AS sepsis,
    flag(diagnosed LIKE '%|cardiac arrest%' OR reason LIKE 'cardiac arrest%') AS cardiac_arrest,
    flag(diagnosed LIKE '%|pneumonia%' OR reason LIKE 'pneumonia%') AS pneumonia,
    flag(regexp_matches(diagnosed, '\|trauma|(due|secondary) to trauma') OR reason_path LIKE '%|trauma|%'
        OR reason_path LIKE '%|trauma') AS trauma,
    count(*) FILTER (origin = 'diagnosis') AS rows_diagnosis,
    count(*) FILTER (origin = 'admissionDx') AS rows_admissionDx
FROM items
GROUP BY stay
