package admission

import "net/http"

// stackBytes is the stack space that a request's goroutine gets at once. HTTP/2
// uses one goroutine for each request. Its stack begins with 2 or 4 KiB and
// doubles, and each time it grows, its contents are copied. A call needs more
// than 8 KiB, most of it below the interceptors, where there is much to copy.
const stackBytes = 12 << 10

// RoomyStack runs next on a stack that is already as large as a call needs. This
// costs one copy of an almost empty stack. The technique is that of
// CockroachDB's growstack.
func RoomyStack(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		growStack()
		next.ServeHTTP(w, r)
	})
}

// growStack makes the runtime grow the stack to the size of its frame. The stack
// stays that large, because the runtime shrinks stacks only during garbage
// collection.
//
//go:noinline
func growStack() {
	var frame [stackBytes]byte
	touch(&frame)
}

//go:noinline
func touch(*[stackBytes]byte) {}
