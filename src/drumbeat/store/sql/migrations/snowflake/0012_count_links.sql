-- has_children counts the links of a parent. That changes no table: there is no index of parents here.

SELECT 1;
