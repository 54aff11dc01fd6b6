-- Ends a script whose `lock` is not a string: it is missing, has another type, or could not be read.
--
-- needs  value  the reply of GET

if not value then return 0 end
if not string.find(value.err, '^WRONGTYPE') then return {value.err} end
return -1
