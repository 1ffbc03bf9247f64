package admission

import "net/http"

// stackBytes is what a request's goroutine has room for at once. HTTP/2 has one
// for each request; it begins with 2 or 4 KiB and doubles, and each time what
// is on the stack is copied. A call needs more than 8 KiB, most of them below
// the interceptors, where there is much to copy.
const stackBytes = 12 << 10

// RoomyStack has next run on a stack that is as large as a call needs, which
// costs one copy of an almost empty one. (Of CockroachDB's growstack.)
func RoomyStack(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		growStack()
		next.ServeHTTP(w, r)
	})
}

// growStack makes the runtime find room for its frame: stacks shrink only when
// garbage is collected.
//
//go:noinline
func growStack() {
	var frame [stackBytes]byte
	touch(&frame)
}

//go:noinline
func touch(*[stackBytes]byte) {}
