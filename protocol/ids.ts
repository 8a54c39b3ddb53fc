import { z } from 'zod';
import './validation-messages.ts';

// Separate from entities.ts, so that a program that needs only these starts faster.

/** `ses-` and 16 characters of lower-case base32: valid as a DNS label, a URI authority and a folder name. */
export const SessionIdSchema = z.string().regex(/^ses-[a-z2-7]{16}$/);
export const TurnIdSchema = z.string().regex(/^turn-[a-z2-7]{16}$/);
export const ExecIdSchema = z.string().regex(/^exec-[a-z2-7]{16}$/);
export const TerminalIdSchema = z.string().regex(/^term-[a-z2-7]{16}$/);
export const ProcessIdSchema = z.string().regex(/^proc-[a-z2-7]{16}$/);
export const SnapshotIdSchema = z.string().regex(/^snp-[a-z2-7]{16}$/);
/** A result that a person keeps, whatever becomes of its session. */
export const ArtifactIdSchema = z.string().regex(/^art-[a-z2-7]{16}$/);
/** The random id of a home: valid as a DNS label. */
export const HomeIdSchema = z.string().regex(/^[a-z2-7]{26}$/);
/** An id, a name, or `profile/name`. */
export const SessionRefSchema = z.string().min(1).max(200);
