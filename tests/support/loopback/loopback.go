// Package loopback returns loopback addresses for test servers that restart on
// the same address.
package loopback

import (
	"fmt"
	"math/rand/v2"
)

// Host returns a random address within 127.0.0.0/8. Because no other test uses
// the address, its ports stay free while the server is down: neither a test
// that listens on port 0 nor an outgoing connection gets them.
func Host() string {
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(250), rand.IntN(256), 1+rand.IntN(250))
}
