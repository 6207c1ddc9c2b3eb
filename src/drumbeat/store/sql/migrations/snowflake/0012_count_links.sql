-- has_children counts the links of a parent, as in the other databases, to which a store can be copied.

UPDATE jobs SET has_children = c.links FROM (SELECT parent_seq, COUNT(*) AS links FROM job_links GROUP BY parent_seq) c
 WHERE jobs.seq = c.parent_seq AND jobs.has_children > 0;
