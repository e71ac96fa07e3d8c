-- Every column of every table is read as text: a type guessed from the first rows can fail 100 million rows later.
-- These macros turn text into numbers, and implausible values into missing.

CREATE MACRO number(x) AS TRY_CAST(x AS DOUBLE);

-- A stay's identifier, as it joins the cohort.
CREATE MACRO stay_id(x) AS TRY_CAST(x AS BIGINT);

CREATE MACRO blank(x) AS nullif(trim(x), '');

-- A value inside its plausible range, else missing. DECIMAL, so that a mean does not depend on the order of the sum.
CREATE MACRO within(x, low, high) AS
    CASE WHEN number(x) BETWEEN low AND high THEN CAST(number(x) AS DECIMAL(12, 3)) END;

-- 77 to 113 can only be degrees Fahrenheit: monitors and nurses chart both units in one column.
CREATE MACRO celsius(x) AS
    within(CASE WHEN number(x) BETWEEN 77 AND 113 THEN (number(x) - 32) / 1.8 ELSE number(x) END, 25, 45);

-- Inspired oxygen in percent, also where it was charted as a fraction.
CREATE MACRO percent(x) AS within(CASE WHEN number(x) <= 1 THEN number(x) * 100 ELSE number(x) END, 21, 100);

-- A row that was both recorded and entered by the prediction time. Offsets are minutes after unit admission;
-- greatest() ignores a missing offset.
CREATE MACRO known(recorded, entered, until) AS greatest(number(recorded), number(entered)) <= until;

-- The same for measurements and procedures, without rows from more than a day before unit admission.
CREATE MACRO recent(recorded, entered, until) AS known(recorded, entered, until) AND number(recorded) >= -1440;

-- 1 where the condition is true in any row, else 0.
CREATE MACRO flag(condition) AS CAST(coalesce(bool_or(condition), false) AS FLOAT);

-- Urine among the charted outputs. Labels are the hospitals' own words.
CREATE MACRO is_urine(path, label) AS path LIKE '%|Output (ml)|%'
    AND regexp_matches(label, 'urin|urethral|foley|voided|indwelling catheter', 'i')
    AND NOT regexp_matches(label, 'count|occurrence|unmeasured|stool|irrig', 'i');

-- Glomerular filtration in ml/min/1.73 m², from creatinine in mg/dl: CKD-EPI 2021, which does not use race.
-- L. A. Inker et al., New England Journal of Medicine 385, 2021. NULL for an unknown sex.
CREATE MACRO egfr(creatinine, age, sex) AS CASE sex
    WHEN 'Female' THEN 142 * pow(least(creatinine / 0.7, 1), -0.241) * pow(greatest(creatinine / 0.7, 1), -1.2)
        * pow(0.9938, age) * 1.012
    WHEN 'Male' THEN 142 * pow(least(creatinine / 0.9, 1), -0.302) * pow(greatest(creatinine / 0.9, 1), -1.2)
        * pow(0.9938, age)
END;
