-- Drugs ordered and due to start, or infused, by the prediction time. Four orders in ten carry no name but a
-- code of the drug's ingredients (HICL); the codes below are those that the table itself gives to these names.
-- drugordercancelled has no time (an order may be cancelled after the prediction time), so it is not used.
WITH ordered AS (
    SELECT stay, 'medication' AS origin, lower(drugname) AS drug, stay_id(drughiclseqno) AS code
    FROM medication JOIN cohort ON stay_id(patientunitstayid) = stay
    WHERE recent(drugstartoffset, drugorderoffset, until)
),
infused AS (
    -- Rates of zero are charted when an infusion is stopped or only prepared.
    SELECT stay, 'infusionDrug' AS origin, lower(drugname) AS drug
    FROM infusionDrug JOIN cohort ON stay_id(patientunitstayid) = stay
    WHERE recent(infusionoffset, infusionoffset, until)
        AND coalesce(greatest(number(drugrate), number(infusionrate)), 1) > 0
),
items AS (
    SELECT * FROM ordered UNION ALL BY NAME SELECT * FROM infused
)
SELECT
    stay,
    flag(regexp_matches(drug, 'cillin|zosyn|unasyn|augmentin|bactam|\bcef|cephalexin|keflex|rocephin|ancef|kefzol'
            || '|maxipime|fortaz|teflaro|penem|merrem|invanz|primaxin|aztreonam|azactam|floxacin|levaquin|\bcipro\b'
            || '|avelox|vancomycin|vancocin|azithromycin|zithromax|clarithromycin|erythromycin|clindamycin|cleocin'
            || '|daptomycin|cubicin|gentamicin|tobramycin|amikacin|doxycycline|minocycline|tigecycline|tygacil'
            || '|metronidazole|flagyl|linezolid|zyvox|sulfamethoxazole|bactrim|septra|colisti|polymyxin|rifampin')
        OR (drug IS NULL AND code IN (3976, 3996, 4042, 4044, 4157, 4704, 6071, 6334, 8259, 8466, 8738, 10093, 10132,
            11254, 12383, 12384, 25040, 26808, 32900, 33094, 35282, 37021, 37442))) AS antibiotics,
    flag(regexp_matches(drug, 'propofol|diprivan|midazolam|versed|lorazepam|ativan|diazepam|valium|dexmedetomidine'
            || '|precedex|ketamine|ketalar|pentobarbital')
        OR (drug IS NULL AND code IN (1615, 1619, 4842, 4846, 10329, 20971, 24523, 34908, 40230))) AS sedatives,
    -- Not the inhaled, nasal and local forms of the same drugs.
    flag((regexp_matches(drug, 'epinephrine|levophed|adrenalin|phenylephrine|neo-?synephrine|vasopressin|vasostrict'
            || '|pitressin|dopamine|angiotensin ii|giapreza')
            AND NOT regexp_matches(drug, 'racepinephrine|racemic|lidocaine|bupivacaine|articaine|desmopressin'
            || '|nasal|spray|ophth|epipen|without vasoactives'))
        OR (drug IS NULL AND code IN (2050, 2051, 2059, 2087, 2839, 35517, 35587, 36346, 36437))) AS vasopressors,
    count(*) FILTER (origin = 'medication') AS rows_medication,
    count(*) FILTER (origin = 'infusionDrug') AS rows_infusionDrug
FROM items
GROUP BY stay
