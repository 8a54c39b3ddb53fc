import { useState } from 'preact/hooks';
import { plain } from '../format.ts';
import type { HomeQuestion, HomeSession } from '../home-messages.ts';
import { Icon } from '../view/icon.tsx';
import type { HomeModel } from './home-model.ts';

interface Props {
  readonly model: HomeModel;
  readonly session: HomeSession;
  readonly questions: readonly HomeQuestion[];
}

/** What the agent of a session asks, answered in place. Whoever answers first, here or elsewhere, answers it. */
export function Questions({ model, session, questions }: Props) {
  return (
    <>
      {questions.map((question) => (
        <Question key={question.id} {...{ model, session, question }} />
      ))}
    </>
  );
}

function Question({
  model,
  session,
  question,
}: Omit<Props, 'questions'> & { readonly question: HomeQuestion }) {
  const { id, title, about, answers } = question;
  const [isSending, setSending] = useState(false);
  const send = async (answer: string): Promise<void> => {
    setSending(true);
    const done = await model.ask('answer', { session: session.id, question: id, answer });
    // The question goes when the session has changed; what failed can be tried again.
    if (done === undefined) setSending(false);
  };
  return (
    <section class="question" aria-label={`${plain(session.title)} asks: ${plain(title)}`}>
      <p class="said">
        <Icon name="question" /> {plain(title)}
      </p>
      {about !== null && <p class="quiet">{plain(about)}</p>}
      <div class="actions">
        {answers.map(({ id: answer, label, effect, isAllowing }, index) => (
          <button
            key={answer}
            class={index === 0 && isAllowing ? 'primary' : 'secondary'}
            disabled={isSending}
            onClick={() => void send(answer)}
          >
            {plain(label)} <span class="effect">· {effect}</span>
          </button>
        ))}
      </div>
    </section>
  );
}
