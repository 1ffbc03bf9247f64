package host

import "github.com/hostd/hostd/host/modules"

// Modules returns the node's modules. Tests use it to widen the window of an
// activation that takes almost no time otherwise.
func (n *Node) Modules() *modules.Modules { return n.guests.modules }
