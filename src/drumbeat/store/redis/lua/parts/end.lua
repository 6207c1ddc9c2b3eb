local ok, answer = pcall(operate)
if ok then return {1, answer} end
if type(answer) == 'table' and answer.refused then return {0, answer.refused, answer.why} end
error(answer, 0)
