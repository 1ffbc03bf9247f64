// Package loopback has addresses of this machine for servers of tests that
// others are to find again.
package loopback

import (
	"fmt"
	"math/rand/v2"
)

// Host returns an address of the caller's own within 127.0.0.0/8. Nothing else
// takes its ports while nobody listens there: neither another test that asks
// for any port, nor a client that dials.
func Host() string {
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(250), rand.IntN(256), 1+rand.IntN(250))
}
