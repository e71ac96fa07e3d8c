-- Organ support and surgery by the prediction time: treatments, care plan, respiratory charts, admission, APACHE.
-- activeupondischarge (treatment, care plan) and the ends of ventilation are written at discharge: never named here.
WITH treated AS (
    SELECT stay, 'treatment' AS origin, lower(treatmentstring) AS given
    FROM treatment JOIN cohort ON stay_id(patientunitstayid) = stay
    WHERE recent(treatmentoffset, treatmentoffset, until)
),
planned AS (
    SELECT stay, 'carePlanGeneral' AS origin, lower(cplgroup) AS plan_group, lower(cplitemvalue) AS plan
    FROM carePlanGeneral JOIN cohort ON stay_id(patientunitstayid) = stay
    WHERE recent(cplitemoffset, cplitemoffset, until)
),
airways AS (
    SELECT stay, 'respiratoryCare' AS origin, lower(airwaytype) AS airway
    FROM respiratoryCare JOIN cohort ON stay_id(patientunitstayid) = stay
    WHERE recent(respcarestatusoffset, respcarestatusoffset, until)
),
ventilator AS (
    SELECT
        stay,
        'respiratoryCharting' AS origin,
        (respchartvaluelabel = 'RT Vent On/Off' AND respchartvalue IN ('Start', 'Continued'))
            OR (respchartvaluelabel = 'Tidal Volume (set)' AND number(respchartvalue) > 0) AS ventilator_on
    FROM respiratoryCharting JOIN cohort ON stay_id(patientunitstayid) = stay
    WHERE recent(respchartoffset, respchartentryoffset, until)
        AND respchartvaluelabel IN ('RT Vent On/Off', 'Tidal Volume (set)')
),
admitted AS (
    SELECT stay, lower(admitdxpath) AS reason_path
    FROM admissionDx JOIN cohort ON stay_id(patientunitstayid) = stay
    WHERE known(admitdxenteredoffset, admitdxenteredoffset, until)
),
physiology AS (
    SELECT stay, number(intubated) = 1 AS intubated, number(vent) = 1 AS ventilated, number(dialysis) = 1 AS dialysed
    FROM apacheApsVar JOIN cohort ON stay_id(patientunitstayid) = stay
),
predictors AS (
    SELECT stay, number(electivesurgery) = 1 AS elective
    FROM apachePredVar JOIN cohort ON stay_id(patientunitstayid) = stay
),
items AS (
    SELECT * FROM treated
    UNION ALL BY NAME SELECT * FROM planned
    UNION ALL BY NAME SELECT * FROM airways
    UNION ALL BY NAME SELECT * FROM ventilator
    UNION ALL BY NAME SELECT * FROM admitted
    UNION ALL BY NAME SELECT * FROM physiology
    UNION ALL BY NAME SELECT * FROM predictors
)
SELECT
    stay,
    flag(intubated
        OR (plan_group = 'airway' AND plan LIKE 'intubated%')
        OR airway IN ('oral ett', 'nasal ett', 'tracheostomy', 'double-lumen tube', 'cricothyrotomy')
        OR (given LIKE '%|endotracheal tube%' AND given NOT LIKE '%removal%')
        OR given LIKE '%|reintubation%' OR given LIKE '%|tracheostomy%') AS intubation,
    flag(ventilated OR ventilator_on
        OR (plan_group = 'ventilation' AND plan LIKE 'ventilated%')
        OR (given LIKE '%|mechanical ventilation%' AND given NOT LIKE '%non-invasive%')
        OR given LIKE '%|ventilator weaning%') AS ventilation,
    flag((plan_group = 'ventilation' AND plan LIKE 'non-invasive%')
        OR given LIKE '%|non-invasive ventilation%') AS noninvasive_ventilation,
    flag(dialysed
        OR (regexp_matches(given,
                '\|(hemodialysis|peritoneal dialysis|dialysis$|c ?v ?v ?h|c ?a ?v ?h|sled|ultrafiltration)')
            AND given NOT LIKE '%insertion%')) AS dialysis,
    flag(elective
        OR (plan_group = 'planned procedures' AND plan = 'surgery')
        OR reason_path LIKE '%|operative|%' OR reason_path LIKE '%|operative organ systems|%'
        OR reason_path LIKE '%o.r. within 4 hours of admission?|yes'
        OR regexp_matches(given, '\|(cardiac|vascular|exploratory|adrenal) surgery\||\|neurosurgery|\|surgery\|'
            || '|\|surgical (debridement|resection)|drainage procedure - surgical|\|pulmonary resection'
            || '|\|thoracoscopic procedure|\|internal fixation|\|fasciotomy')) AS surgery,
    flag(elective OR reason_path LIKE '%|elective|yes') AS elective_surgery,
    count(*) FILTER (origin = 'treatment') AS rows_treatment,
    count(*) FILTER (origin = 'carePlanGeneral') AS rows_carePlanGeneral,
    count(*) FILTER (origin = 'respiratoryCare') AS rows_respiratoryCare,
    count(*) FILTER (origin = 'respiratoryCharting') AS rows_respiratoryCharting
FROM items
GROUP BY stay
