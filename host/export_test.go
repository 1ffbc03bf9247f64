package host

import "github.com/hostd/hostd/host/modules"

// Modules are the node's, for tests that hold open what takes no time else.
func (n *Node) Modules() *modules.Modules { return n.guests.modules }
