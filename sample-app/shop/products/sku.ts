/** One spelling for each product: no capitals, so that no two skus are one to a database that ignores case. */
export const SKU = /^[a-z0-9-]{1,40}$/;
