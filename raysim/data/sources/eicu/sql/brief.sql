-- The features of a stay in CS-RCFL's experiment, see brief.py. Heart rate and score are APACHE's, of the first 24
-- hours; medicines are ordered and due to start, or infused, by the prediction time.
WITH given AS (
    -- One medicine has many names, by brand and dose, but one code of its ingredients (HICL).
    SELECT stay, coalesce(blank(drughiclseqno), lower(blank(drugname))) AS medicine
    FROM medication JOIN cohort ON stay_id(patientunitstayid) = stay
    WHERE recent(drugstartoffset, drugorderoffset, until)
    UNION ALL
    SELECT stay, lower(blank(drugname)) AS medicine
    FROM infusionDrug JOIN cohort ON stay_id(patientunitstayid) = stay
    WHERE recent(infusionoffset, infusionoffset, until)
        AND coalesce(greatest(number(drugrate), number(infusionrate)), 1) > 0
),
medicines AS (
    SELECT stay, count(DISTINCT medicine) AS medicines FROM given GROUP BY stay
),
rates AS (
    SELECT stay_id(patientunitstayid) AS stay, max(within(heartrate, 20, 300)) AS heart_rate
    FROM apacheApsVar
    GROUP BY ALL
),
scores AS (
    -- -1 means that no score could be computed.
    SELECT stay_id(patientunitstayid) AS stay, max(within(apachescore, 0, 300)) AS apache_score
    FROM apachePatientResult
    WHERE blank(apacheversion) = 'IV'
    GROUP BY ALL
)
SELECT
    cohort.*,
    coalesce(medicines, 0) AS medicines,
    CAST(heart_rate AS DOUBLE) AS heart_rate,
    CAST(apache_score AS DOUBLE) AS apache_score
FROM cohort
    LEFT JOIN medicines USING (stay)
    LEFT JOIN rates USING (stay)
    LEFT JOIN scores USING (stay)
ORDER BY stay
