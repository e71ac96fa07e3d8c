-- Acute kidney injury of each stay: when it began (KDIGO stage 1 or more), and what the exclusions need.
-- Results count from seven days before unit admission to the end of the stay or of the hours ahead, whichever is first.
WITH followed AS (
    SELECT
        stay, age, sex, weight,
        least(ended, getvariable('minutes') + getvariable('ahead')) AS last
    FROM stays
    WHERE left_out IS NULL
),
results AS (
    SELECT stay, CAST(number(labresultoffset) AS BIGINT) AS minute, within(labresult, 0.1, 30) AS creatinine, last
    FROM lab JOIN followed ON stay_id(patientunitstayid) = stay
    WHERE lower(trim(labname)) = 'creatinine' AND number(labresultoffset) BETWEEN -10080 AND last
),
compared AS (
    -- Strictly before: two results of the same minute are no evidence of a rise.
    SELECT
        stay, minute, creatinine,
        min(creatinine) OVER (
            PARTITION BY stay ORDER BY minute RANGE BETWEEN 10080 PRECEDING AND 1 PRECEDING) AS lowest_of_7_days,
        min(creatinine) OVER (
            PARTITION BY stay ORDER BY minute RANGE BETWEEN 2880 PRECEDING AND 1 PRECEDING) AS lowest_of_48_hours
    FROM results
    WHERE creatinine IS NOT NULL
),
creatinine AS (
    SELECT
        stay,
        count(*) AS measured,
        arg_min(creatinine, row(minute, creatinine)) FILTER (minute >= -1440) AS first_creatinine,
        min(minute) FILTER (creatinine >= 1.5 * lowest_of_7_days OR creatinine >= lowest_of_48_hours + 0.3) AS began
    FROM compared
    GROUP BY stay
),
charted AS (
    SELECT stay, CAST(number(intakeoutputoffset) AS BIGINT) AS minute, sum(within(cellvaluenumeric, 0, 5000)) AS ml
    FROM intakeOutput JOIN followed ON stay_id(patientunitstayid) = stay
    WHERE number(intakeoutputoffset) BETWEEN 1 AND last AND is_urine(cellpath, celllabel)
    GROUP BY ALL
    HAVING ml IS NOT NULL
    -- The bladder is assumed empty at unit admission: all urine charted first was made after it.
    UNION ALL SELECT stay, 0, 0 FROM followed
),
added AS (
    SELECT stay, minute, sum(ml) OVER (PARTITION BY stay ORDER BY minute) AS ml FROM charted
),
spans AS (
    -- From the last charting at least six hours earlier to this one.
    SELECT
        stay, minute,
        last_value(minute) OVER six_hours_ago AS since,
        ml - last_value(ml) OVER six_hours_ago AS made
    FROM added
    WINDOW six_hours_ago AS (PARTITION BY stay ORDER BY minute RANGE BETWEEN UNBOUNDED PRECEDING AND 360 PRECEDING)
),
urine AS (
    -- A gap of more than twelve hours means that charting lapsed, not that there was little urine.
    SELECT
        stay,
        count(*) AS spans,
        min(minute) FILTER (CAST(made AS DOUBLE) * 60 < 0.5 * CAST(weight AS DOUBLE) * (minute - since)) AS began
    FROM spans JOIN followed USING (stay)
    WHERE minute - since <= 720 AND weight IS NOT NULL
    GROUP BY stay
)
SELECT
    stay,
    coalesce(creatinine.measured, 0) AS creatinine_values,
    egfr(CAST(first_creatinine AS DOUBLE), age, sex) AS egfr,
    coalesce(urine.spans, 0) AS urine_spans,
    creatinine.began AS by_creatinine,
    urine.began AS by_urine,
    least(creatinine.began, urine.began) AS began
FROM followed LEFT JOIN creatinine USING (stay) LEFT JOIN urine USING (stay)
