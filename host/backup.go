package host

import (
	"github.com/hostd/hostd/api/gen/hostd/peer/v1/peerv1connect"
	"github.com/hostd/hostd/host/backup"
)

const backupPath = "/" + peerv1connect.TransferServiceName + "/"

// backups holds this node's part in exports and imports, and the service that
// coordinates an export or import that a client starts on this node.
type backups struct {
	part    *backup.Part
	service *backup.Service
}

// newPart returns this node's part in exports and imports.
func (n *Node) newPart() *backup.Part {
	return backup.NewPart(backup.PartOptions{
		Log: &n.replicas.raft, Machine: n.replicas.machine, Logger: n.logger,
		Leads: &n.deliveries,
	})
}

// openBackups serves this node's part to other nodes, and creates the service
// that calls the parts of all nodes.
func (n *Node) openBackups() {
	_, handler := backup.Handler(n.backup.part, carried{n})
	n.ports.backups.handler = n.peers.Admit(handler)
	n.backup.service = backup.NewService(backup.Options{
		Self: n.id.Node, Cluster: n.id.Now().Cluster, Shards: n.shards, Part: n.backup.part, Peers: n.peers, Leaders: n.routing.leaders,
		Metadata: n.membership.metadata, Modules: n.guests.modules.Service, Rollouts: n.guests.modules.Rollouts, Logger: n.logger,
	})
}
