/** Also keeps colons and braces out, which `@Locked('product:{params.sku}')` would escape and `product:${sku}` would not. */
export const SKU = /^[a-z0-9-]{1,40}$/;
