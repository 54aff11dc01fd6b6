-- The end of a script that has found something else in `lock` than its owner: another owner, what is no string, or an
-- error.
--
-- needs  holder  as GET answered

if type(holder) == 'table' and not string.find(holder.err, '^WRONGTYPE') then return {holder.err} end
return -1
