import { createRequire } from 'node:module';
import { Injectable, type INestApplication } from '@nestjs/common';
import { AbstractGraphQLDriver, GraphQLModule, GraphQLSchemaHost, type GqlModuleOptions } from '@nestjs/graphql';
import type { ExecutionResult } from 'graphql';

// The copy that Nest uses: Vite would load another one, with the other module format.
const { graphql } = createRequire(import.meta.url)('graphql') as typeof import('graphql');

/** The part of a driver that serves HTTP is not needed: the tests run the schema themselves. */
@Injectable()
class SchemaOnly extends AbstractGraphQLDriver {
  async start(_options: GqlModuleOptions): Promise<void> {}
  async stop(): Promise<void> {}
}

/** To import: its schema is made from the resolvers of the application. */
export const graphQLModule = (options: Partial<GqlModuleOptions> = {}) =>
  GraphQLModule.forRoot({ driver: SchemaOnly, autoSchemaFile: true, ...options });

/** The result of a query or a mutation by the schema of an application. */
export function execute(app: INestApplication, source: string, contextValue?: object): Promise<ExecutionResult> {
  return graphql({ schema: app.get(GraphQLSchemaHost).schema, source, contextValue });
}
