-- Laboratory results up to the prediction time. A result is known when it was last revised: an earlier value of a
-- revised result is no longer in the table, so the result stays out where its revision came too late.
WITH results AS NOT MATERIALIZED (
    SELECT stay, lower(trim(labname)) AS lab, labresult AS result
    FROM lab JOIN cohort ON stay_id(patientunitstayid) = stay
    WHERE recent(labresultoffset, labresultrevisedoffset, until)
),
readings AS NOT MATERIALIZED (
    SELECT
        stay,
        CASE WHEN lab = 'sodium' THEN within(result, 90, 200) END AS lab_sodium,
        CASE WHEN lab = 'potassium' THEN within(result, 1, 12) END AS lab_potassium,
        CASE WHEN lab = 'creatinine' THEN within(result, 0.1, 30) END AS lab_creatinine,
        CASE WHEN lab = 'lactate' THEN within(result, 0.1, 40) END AS lab_lactate,
        CASE WHEN lab = 'wbc x 1000' THEN within(result, 0, 500) END AS lab_wbc,
        CASE WHEN lab = 'hct' THEN within(result, 5, 75) END AS lab_hematocrit,
        CASE WHEN lab = 'albumin' THEN within(result, 0.5, 7) END AS lab_albumin,
        CASE WHEN lab = 'total bilirubin' THEN within(result, 0, 70) END AS lab_bilirubin,
        CASE WHEN lab = 'bun' THEN within(result, 1, 300) END AS lab_bun,
        CASE WHEN lab IN ('glucose', 'bedside glucose') THEN within(result, 10, 2000) END AS lab_glucose,
        CASE WHEN lab = 'ph' THEN within(result, 6.5, 8) END AS lab_ph,
        CASE WHEN lab = 'pao2' THEN within(result, 15, 700) END AS lab_pao2,
        CASE WHEN lab = 'paco2' THEN within(result, 5, 200) END AS lab_pco2,
        CASE WHEN lab = 'fio2' THEN percent(result) END AS lab_fio2
    FROM results
    WHERE lab IN ('sodium', 'potassium', 'creatinine', 'lactate', 'wbc x 1000', 'hct', 'albumin', 'total bilirubin',
        'bun', 'glucose', 'bedside glucose', 'ph', 'pao2', 'paco2', 'fio2')
)
SELECT
    stay,
    min(COLUMNS('^lab_(.*)$')) AS '\1_min',
    max(COLUMNS('^lab_(.*)$')) AS '\1_max',
    CAST(sum(COLUMNS('^lab_(.*)$')) AS DOUBLE) / count(COLUMNS('^lab_(.*)$')) AS '\1_mean',
    count(*) AS rows_lab
FROM readings
GROUP BY stay
