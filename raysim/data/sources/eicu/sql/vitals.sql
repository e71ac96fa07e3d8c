-- Bedside signs up to the prediction time, from monitors, cuffs, nurses and examinations alike.
-- The coma score is here and not in a file of its own because nurses chart it in the same table, which in the
-- full database has 151 million rows and should be read once.
WITH periodic AS NOT MATERIALIZED (
    SELECT
        stay,
        'vitalPeriodic' AS origin,
        within(heartrate, 20, 300) AS heart_rate,
        within(systemicsystolic, 30, 300) AS systolic_pressure,
        within(systemicdiastolic, 10, 200) AS diastolic_pressure,
        within(systemicmean, 20, 250) AS mean_pressure,
        within(respiration, 2, 80) AS respiratory_rate,
        within(sao2, 30, 100) AS oxygen_saturation,
        celsius(temperature) AS temperature
    FROM vitalPeriodic JOIN cohort ON stay_id(patientunitstayid) = stay
    WHERE recent(observationoffset, observationoffset, until)
),
aperiodic AS NOT MATERIALIZED (
    SELECT
        stay,
        'vitalAperiodic' AS origin,
        within(noninvasivesystolic, 30, 300) AS systolic_pressure,
        within(noninvasivediastolic, 10, 200) AS diastolic_pressure,
        within(noninvasivemean, 20, 250) AS mean_pressure
    FROM vitalAperiodic JOIN cohort ON stay_id(patientunitstayid) = stay
    WHERE recent(observationoffset, observationoffset, until)
),
charted AS NOT MATERIALIZED (
    SELECT
        stay,
        nursingchartcelltypevallabel AS label,
        nursingchartcelltypevalname AS name,
        nursingchartvalue AS charted
    FROM nurseCharting JOIN cohort ON stay_id(patientunitstayid) = stay
    WHERE recent(nursingchartoffset, nursingchartentryoffset, until)
),
nursing AS NOT MATERIALIZED (
    SELECT
        stay,
        'nurseCharting' AS origin,
        CASE WHEN label = 'Heart Rate' THEN within(charted, 20, 300) END AS heart_rate,
        CASE WHEN name IN ('Non-Invasive BP Systolic', 'Invasive BP Systolic')
            THEN within(charted, 30, 300) END AS systolic_pressure,
        CASE WHEN name IN ('Non-Invasive BP Diastolic', 'Invasive BP Diastolic')
            THEN within(charted, 10, 200) END AS diastolic_pressure,
        CASE WHEN name IN ('Non-Invasive BP Mean', 'Invasive BP Mean')
            OR label IN ('MAP (mmHg)', 'Arterial Line MAP (mmHg)') THEN within(charted, 20, 250) END AS mean_pressure,
        CASE WHEN label = 'Respiratory Rate' THEN within(charted, 2, 80) END AS respiratory_rate,
        CASE WHEN label = 'O2 Saturation' THEN within(charted, 30, 100) END AS oxygen_saturation,
        CASE WHEN name IN ('Temperature (C)', 'Temperature (F)') THEN celsius(charted) END AS temperature,
        CASE WHEN name = 'GCS Total' OR label = 'Score (Glasgow Coma Scale)' THEN within(charted, 3, 15) END AS gcs
    FROM charted
    WHERE label IN ('Heart Rate', 'Non-Invasive BP', 'Invasive BP', 'MAP (mmHg)', 'Arterial Line MAP (mmHg)',
        'Respiratory Rate', 'O2 Saturation', 'Temperature', 'Glasgow coma score', 'Score (Glasgow Coma Scale)')
),
examined AS (
    SELECT
        stay,
        physicalexamoffset AS examined_at,
        regexp_replace(physicalexampath, '^.*/Physical Exam/Physical Exam/', '') AS item,
        physicalexamtext AS found
    FROM physicalExam JOIN cohort ON stay_id(patientunitstayid) = stay
    WHERE recent(physicalexamoffset, physicalexamoffset, until)
        AND (physicalexampath LIKE '%/Vital Sign and Physiological Data/%'
            OR physicalexampath LIKE '%/Neurologic/GCS/%')
),
exam_signs AS (
    -- Current, lowest and highest value of a vital sign count as three readings.
    SELECT
        stay,
        'physicalExam' AS origin,
        CASE WHEN item LIKE '%/HR/%' THEN within(found, 20, 300) END AS heart_rate,
        CASE WHEN item LIKE '%/BP (systolic)/%' THEN within(found, 30, 300) END AS systolic_pressure,
        CASE WHEN item LIKE '%/BP (diastolic)/%' THEN within(found, 10, 200) END AS diastolic_pressure,
        CASE WHEN item LIKE '%/Resp Rate/%' THEN within(found, 2, 80) END AS respiratory_rate,
        CASE WHEN item LIKE '%/O2 Sat\%/%' ESCAPE '\' THEN within(found, 30, 100) END AS oxygen_saturation,
        CASE WHEN regexp_matches(item, '^Neurologic/GCS/\d+$') THEN within(found, 3, 15) END AS gcs
    FROM examined
),
exam_scores AS (
    -- Eyes, motor and verbal are scored separately; a sum needs all three.
    SELECT
        stay,
        'physicalExam scores' AS origin,
        max(CASE WHEN item LIKE 'Neurologic/GCS/Eyes Score/%' THEN within(found, 1, 4) END)
            + max(CASE WHEN item LIKE 'Neurologic/GCS/Motor Score/%' THEN within(found, 1, 6) END)
            + max(CASE WHEN item LIKE 'Neurologic/GCS/Verbal Score/%' THEN within(found, 1, 5) END) AS gcs
    FROM examined
    GROUP BY stay, examined_at
),
readings AS NOT MATERIALIZED (
    SELECT * FROM periodic
    UNION ALL BY NAME SELECT * FROM aperiodic
    UNION ALL BY NAME SELECT * FROM nursing
    UNION ALL BY NAME SELECT * FROM exam_signs
    UNION ALL BY NAME SELECT * FROM exam_scores
)
SELECT
    stay,
    min(COLUMNS('^(gcs|.*_(?:rate|pressure|saturation)|temperature)$')) AS '\1_min',
    max(COLUMNS('^(gcs|.*_(?:rate|pressure|saturation)|temperature)$')) AS '\1_max',
    CAST(sum(COLUMNS('^(gcs|.*_(?:rate|pressure|saturation)|temperature)$')) AS DOUBLE)
        / count(COLUMNS('^(gcs|.*_(?:rate|pressure|saturation)|temperature)$')) AS '\1_mean',
    count(*) FILTER (origin = 'vitalPeriodic') AS rows_vitalPeriodic,
    count(*) FILTER (origin = 'vitalAperiodic') AS rows_vitalAperiodic,
    count(*) FILTER (origin = 'nurseCharting') AS rows_nurseCharting,
    count(*) FILTER (origin = 'physicalExam') AS rows_physicalExam
FROM readings
GROUP BY stay
