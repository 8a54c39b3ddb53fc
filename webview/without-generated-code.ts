import * as z from 'zod';

// The policy of the page allows no generated code, and reports each attempt. Imported first: schemas ask when they are made.
z.config({ jitless: true });
