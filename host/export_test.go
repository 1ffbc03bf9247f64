package host

import "github.com/hostd/hostd/host/modules"

// Modules returns the node's modules. Tests use it to make an activation last
// long enough for them to act while it runs.
func (n *Node) Modules() *modules.Modules { return n.guests.modules }
