-- Chronic illness, from the history taken by the prediction time and from the chronic health items of APACHE.
-- Of apachePredVar only these items and the intention of surgery are ever named: it also holds the outcome.
WITH told AS (
    SELECT stay, 'pastHistory' AS origin, pasthistorypath AS path
    FROM pastHistory JOIN cohort ON stay_id(patientunitstayid) = stay
    WHERE known(pasthistoryoffset, pasthistoryenteredoffset, until)
),
scored AS (
    SELECT
        stay,
        'apachePredVar' AS origin,
        number(aids) = 1 AS aids,
        number(hepaticfailure) = 1 AS hepaticfailure,
        number(cirrhosis) = 1 AS cirrhosis,
        number(lymphoma) = 1 AS lymphoma,
        number(leukemia) = 1 AS leukemia,
        number(metastaticcancer) = 1 AS metastaticcancer,
        number(immunosuppression) = 1 AS immunosuppression,
        number(diabetes) = 1 AS diabetes
    FROM apachePredVar JOIN cohort ON stay_id(patientunitstayid) = stay
),
items AS (
    SELECT * FROM told UNION ALL BY NAME SELECT * FROM scored
)
SELECT
    stay,
    flag(aids OR path LIKE '%/AIDS/%') AS history_aids,
    flag(hepaticfailure OR regexp_matches(path, '/Cirrhosis/(encephalopathy|coma)')) AS history_hepatic_failure,
    flag(cirrhosis OR path LIKE '%/Cirrhosis/%') AS history_cirrhosis,
    flag(lymphoma OR path LIKE '%Hodgkins%') AS history_lymphoma,
    flag(leukemia OR regexp_matches(path, '/Hematologic Malignancy/(ALL|AML|CLL|CML|leukemia)')) AS history_leukemia,
    flag(metastaticcancer OR path LIKE '%/Metastases/%') AS history_metastatic_cancer,
    flag(immunosuppression OR path LIKE '%/Immunosuppression within%' OR path LIKE '%/Chemotherapy/%')
        AS history_immunosuppression,
    flag(diabetes OR path LIKE '%Dependent Diabetes/%') AS history_diabetes,
    flag(path LIKE '%/Cancer-Primary Site/%') AS history_cancer,
    flag(path LIKE '%/Congestive Heart Failure/%') AS history_heart_failure,
    flag(path LIKE '%/Myocardial Infarction/%') AS history_myocardial_infarction,
    flag(path LIKE '%/atrial fibrillation%') AS history_atrial_fibrillation,
    flag(path LIKE '%/Hypertension Requiring Treatment/%') AS history_hypertension,
    flag(path LIKE '%/Peripheral Vascular Disease/%') AS history_vascular_disease,
    flag(path LIKE '%/COPD/%') AS history_copd,
    flag(path LIKE '%/Asthma/%') AS history_asthma,
    flag(path LIKE '%/Renal Failure/%' OR path LIKE '%/Renal Insufficiency/%') AS history_kidney_disease,
    flag(path LIKE '%/Strokes/%') AS history_stroke,
    flag(path LIKE '%/Dementia/%') AS history_dementia,
    count(*) FILTER (origin = 'pastHistory') AS rows_pastHistory,
    count(*) FILTER (origin = 'apachePredVar') AS rows_apachePredVar
FROM items
GROUP BY stay
