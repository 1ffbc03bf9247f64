package peer

import "sync"

// queue holds the frames for one peer. If it is full, the newest frame is
// dropped. Raft's appends build on each other, so a gap at the front would make
// the peer reject all frames after it, while a lost tail is simply sent again.
// When the link is lost, all frames are dropped, so that a new link starts with
// current messages.
type queue struct {
	maxFrames, maxBytes int
	wake                chan struct{} // one slot: set when there are frames

	mu      sync.Mutex
	frames  [][]byte
	bytes   int // bytes of queued frames, and of taken frames that are not released
	count   int // number of these frames
	dropped uint64
}

func (q *queue) init(maxFrames, maxBytes int) {
	q.maxFrames, q.maxBytes = maxFrames, maxBytes
	q.wake = make(chan struct{}, 1)
}

// push adds a frame or drops it. It does not block.
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

// take returns all frames, and reuses spare for frames that are pushed
// later.
func (q *queue) take(spare [][]byte) [][]byte {
	clear(spare)
	q.mu.Lock()
	defer q.mu.Unlock()
	frames := q.frames
	q.frames = spare[:0]
	return frames
}

// release frees room after taken frames have been sent or dropped.
func (q *queue) release(frames, bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.count -= frames
	q.bytes -= bytes
}

// discard drops all queued frames.
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

// stats returns the queued frames and bytes, and how many frames were dropped.
func (q *queue) stats() (frames, bytes int, dropped uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.count, q.bytes, q.dropped
}
