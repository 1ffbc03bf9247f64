package testkit

import (
	"fmt"
	"sync"
)

// Sizes of the beginning and the end of a process's output that are kept. The
// first lines of a Go crash are worth more than the stacks after them.
const (
	headBytes = 16 << 10
	tailBytes = 64 << 10
)

// tail is a writer that keeps the beginning and the end of its input. It is
// safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	text []byte
	lost int // number of bytes dropped between the beginning and the end
}

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if over := len(t.text) - headBytes - tailBytes; over > tailBytes {
		t.text = append(t.text[:headBytes], t.text[headBytes+over:]...)
		t.lost += over
	}
	return len(p), nil
}

func (t *tail) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text, t.lost = t.text[:0], 0
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lost == 0 {
		return string(t.text)
	}
	return fmt.Sprintf("%s\n... %d bytes ...\n%s", t.text[:headBytes], t.lost, t.text[headBytes:])
}
