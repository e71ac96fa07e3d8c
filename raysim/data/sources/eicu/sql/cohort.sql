-- Every stay: its label, prediction time, silo and patient, and why it is left out (NULL: it is included).
-- The discharge columns are read here, for the label and for when the stay ended, and nowhere else.
WITH hospitals AS (
    -- Grouped, so that a hospital listed twice does not double its stays.
    SELECT
        blank(hospitalid) AS hospitalid,
        min(blank(region)) AS region,
        min(blank(numbedscategory)) AS beds,
        min(CASE lower(blank(teachingstatus)) WHEN 'true' THEN 'yes' WHEN 't' THEN 'yes' WHEN '1' THEN 'yes'
            WHEN 'false' THEN 'no' WHEN 'f' THEN 'no' WHEN '0' THEN 'no' END) AS teaching
    FROM hospital
    GROUP BY ALL
),
stays AS (
    SELECT
        stay_id(patientunitstayid) AS stay,
        blank(uniquepid) AS patient,
        blank(hospitalid) AS hospitalid,
        coalesce(blank(wardid), 'unknown') AS wardid,
        -- Ages above 89 are one class in the table, to protect the patients.
        CASE WHEN regexp_matches(trim(age), '^>\s*89$') THEN 90 ELSE within(age, 0, 120) END AS age,
        CASE lower(blank(gender)) WHEN 'male' THEN 'Male' WHEN 'female' THEN 'Female' ELSE 'unknown' END AS sex,
        coalesce(blank(ethnicity), 'unknown') AS ethnicity,
        within(admissionheight, 120, 220) / 100.0 AS height,
        within(admissionweight, 25, 350) AS weight,
        number(unitdischargeoffset) AS ended,
        CASE lower(blank(hospitaldischargestatus)) WHEN 'expired' THEN 1 WHEN 'alive' THEN 0 END AS died
    FROM patient
)
SELECT
    stay,
    coalesce(patient, 'stay ' || stay) AS patient,
    CASE getvariable('silo')
        WHEN 'hospital' THEN hospitalid
        WHEN 'ward' THEN hospitalid || '/' || wardid
        ELSE CASE WHEN region IS NULL AND beds IS NULL THEN 'unknown'
            ELSE coalesce(region, 'unknown') || ', ' || coalesce(beds, 'unknown') END
    END AS silo,
    hospitalid,
    coalesce(region, 'unknown') AS region,
    coalesce(beds, 'unknown') AS beds,
    coalesce(teaching, 'unknown') AS teaching,
    CAST(age AS DOUBLE) AS age,
    sex,
    ethnicity,
    CAST(within(CAST(weight AS DOUBLE) / (CAST(height AS DOUBLE) * CAST(height AS DOUBLE)), 10, 80) AS DOUBLE) AS bmi,
    ended,
    weight,
    CASE WHEN getvariable('task') = 'los_days' THEN ended / 1440 ELSE CAST(CASE getvariable('task')
        WHEN 'los' THEN ended > 1440
        WHEN 'aki' THEN CASE WHEN ended IS NOT NULL THEN false END -- aki.sql sets it later
        ELSE died = 1
    END AS INTEGER) END AS label,
    -- The last minute whose rows are known: for a stay that ended first, the minute before its end, so that
    -- what is charted at the discharge or death itself is left out.
    least(getvariable('minutes'), coalesce(ended - 1, getvariable('minutes'))) AS until,
    CASE
        WHEN stay IS NULL THEN 'without a stay number'
        WHEN hospitalid IS NULL THEN 'without a hospital'
        WHEN label IS NULL THEN 'without a known outcome'
        WHEN age IS NULL THEN 'of unknown age'
        WHEN age < 18 THEN 'under 18 years'
        WHEN getvariable('minimum') > 0 AND ended <= getvariable('minimum') THEN 'that ended too early'
    END AS left_out
FROM stays LEFT JOIN hospitals USING (hospitalid)
ORDER BY stay
