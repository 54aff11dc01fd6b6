/** One spelling for each product: without capitals, no two skus are equal in a database that ignores case. */
export const SKU = /^[a-z0-9-]{1,40}$/;
