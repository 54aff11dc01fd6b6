-- The end of a script that has found something else in `lock` than a string: nothing, another type, or an error.
--
-- needs  value  as GET answered

if not value then return 0 end
if not string.find(value.err, '^WRONGTYPE') then return {value.err} end
return -1
