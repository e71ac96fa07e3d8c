-- Urine, in ml per hour from unit admission to the prediction time, so that a stay that ended early does not look like
-- one with little urine.
WITH urine AS (
    SELECT stay, until, within(cellvaluenumeric, 0, 5000) AS ml
    FROM intakeOutput JOIN cohort ON stay_id(patientunitstayid) = stay
    WHERE recent(intakeoutputoffset, intakeoutputentryoffset, until)
        AND number(intakeoutputoffset) >= 0
        AND is_urine(cellpath, celllabel)
)
SELECT
    stay,
    within(CAST(sum(ml) AS DOUBLE) / greatest(min(until) / 60, 1), 0, 1000) AS urine_per_hour,
    count(*) AS rows_intakeOutput
FROM urine
GROUP BY stay
