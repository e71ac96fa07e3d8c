-- The physiology of the APACHE score: the worst value of the first 24 hours, -1 where missing. Every range below
-- leaves -1 out. The table has no offsets: it is known at 24 hours and is not read for an earlier prediction time.
SELECT
    stay,
    -- A score under sedation (meds = 1) is no measure of the brain.
    min(CASE WHEN number(meds) = 1 THEN NULL
        ELSE within(eyes, 1, 4) + within(motor, 1, 6) + within(verbal, 1, 5) END) AS apache_gcs,
    min(within(heartrate, 20, 300)) AS apache_heart_rate,
    min(within(meanbp, 20, 250)) AS apache_mean_pressure,
    min(within(respiratoryrate, 2, 80)) AS apache_respiratory_rate,
    min(celsius(temperature)) AS apache_temperature,
    min(within(urine, 0, 20000)) AS apache_urine,
    min(within(wbc, 0, 500)) AS apache_wbc,
    min(within(sodium, 90, 200)) AS apache_sodium,
    min(within(ph, 6.5, 8)) AS apache_ph,
    min(within(hematocrit, 5, 75)) AS apache_hematocrit,
    min(within(creatinine, 0.1, 30)) AS apache_creatinine,
    min(within(albumin, 0.5, 7)) AS apache_albumin,
    min(within(pao2, 15, 700)) AS apache_pao2,
    min(within(pco2, 5, 200)) AS apache_pco2,
    min(within(bun, 1, 300)) AS apache_bun,
    min(within(glucose, 10, 2000)) AS apache_glucose,
    min(within(bilirubin, 0, 70)) AS apache_bilirubin,
    min(percent(fio2)) AS apache_fio2,
    count(*) AS rows_apacheApsVar
FROM apacheApsVar JOIN cohort ON stay_id(patientunitstayid) = stay
GROUP BY stay
