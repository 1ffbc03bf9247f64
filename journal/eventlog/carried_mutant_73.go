//go:build mutant_73

package eventlog

import "github.com/hostd/hostd/journal/store"

// carried is a planted fault: a replica that begins with another's state does
// not take over which sends its entities have received.
func carried(key []byte) bool { return store.Class(key[0]) != store.ClassInbox }
