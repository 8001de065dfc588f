// The events of one session's streams, so that a client which lost a stream can have the rest of it.

/** Keeps every event of a session in order; an id is `<stream>_<number>`. */
export class EventStore {
  #events = [];

  async storeEvent(stream, message) {
    const id = `${stream}_${this.#events.length}`;
    this.#events.push({ id, stream, message });
    return id;
  }

  async getStreamIdForEventId(id) {
    return this.#events.find((event) => event.id === id)?.stream;
  }

  async replayEventsAfter(last, { send }) {
    const from = this.#events.findIndex((event) => event.id === last);
    if (from < 0) return '';
    const { stream } = this.#events[from];
    for (const event of this.#events.slice(from + 1)) {
      // The empty message is the priming event, which only gives an id to resume from.
      if (event.stream === stream && Object.keys(event.message).length > 0) await send(event.id, event.message);
    }
    return stream;
  }
}
