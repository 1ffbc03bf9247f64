package peer

import "sync"

// queue is the frames that wait for one peer. When it is full, the newest frame
// is dropped: raft's appends follow each other, and a gap in front would make
// the peer refuse all that stand behind it, while a lost end is sent again.
// Everything in it is dropped when the link is lost, so that a new link begins
// with what is said then.
type queue struct {
	maxFrames, maxBytes int
	wake                chan struct{} // one slot: there are frames

	mu      sync.Mutex
	frames  [][]byte
	bytes   int // of frames, and of what was taken and not yet released
	count   int // likewise
	dropped uint64
}

func (q *queue) init(maxFrames, maxBytes int) {
	q.maxFrames, q.maxBytes = maxFrames, maxBytes
	q.wake = make(chan struct{}, 1)
}

// push adds a frame, or drops it. It does not block.
func (q *queue) push(frame []byte) bool {
	q.mu.Lock()
	if len(frame) > MaxFrameBytes || q.count >= q.maxFrames || q.bytes+len(frame) > q.maxBytes {
		q.dropped++
		q.mu.Unlock()
		return false
	}
	q.frames = append(q.frames, frame)
	q.bytes += len(frame)
	q.count++
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return true
}

// take returns all frames and keeps spare, emptied, for the next ones.
func (q *queue) take(spare [][]byte) [][]byte {
	clear(spare)
	q.mu.Lock()
	defer q.mu.Unlock()
	frames := q.frames
	q.frames = spare[:0]
	return frames
}

// release makes room after frames that were taken have been sent or dropped.
func (q *queue) release(frames, bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.count -= frames
	q.bytes -= bytes
}

// discard drops what waits.
func (q *queue) discard() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, f := range q.frames {
		q.bytes -= len(f)
	}
	q.count -= len(q.frames)
	q.dropped += uint64(len(q.frames))
	clear(q.frames)
	q.frames = q.frames[:0]
}

// stats returns what waits, and how many frames were dropped.
func (q *queue) stats() (frames, bytes int, dropped uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.count, q.bytes, q.dropped
}
