package peer

import (
	"github.com/hostd/hostd/api/gen/hostd/peer/v1/peerv1connect"
)

// need is what a procedure requires of the calling node, in addition to a
// certificate of the cluster if nodes use TLS.
type need int

const (
	// needMember: the node is a member according to the metadata. It is the
	// strictest need. It applies to procedures that are not in needs, and to
	// clients' calls that a node forwards.
	needMember need = iota
	// needStart: no operator has put this incarnation of the node down, as
	// far as this node's metadata knows. Raft requires no more, because a
	// node that was away may know neither the members nor the leader from
	// which it must catch up. Frames are then checked against the replicas
	// on this node.
	needStart
	// needNothing: anyone gets an answer, whatever its cluster and
	// incarnation.
	needNothing
)

// needs contains the need of each procedure.
var needs = map[string]need{
	// Nodes without a cluster use these to find or bootstrap one. Vouch
	// answers even an outdated incarnation, because the caller asks for its
	// latest incarnation.
	peerv1connect.PeerServiceProbeProcedure:  needNothing,
	peerv1connect.PeerServicePledgeProcedure: needNothing,
	peerv1connect.PeerServiceVouchProcedure:  needNothing,
	// Join makes a node a member again, even if it was declared dead.
	peerv1connect.PeerServiceJoinProcedure: needStart,
	// Renew declares the caller itself dead. It may have been declared dead
	// already.
	peerv1connect.PeerServiceRenewProcedure: needStart,
	// Raft frames and snapshots.
	peerv1connect.PeerServiceLinkProcedure:         needStart,
	peerv1connect.PeerServiceSendSnapshotProcedure: needStart,

	peerv1connect.PeerServicePrepareLevelProcedure:  needMember,
	peerv1connect.PeerServiceReachProcedure:         needMember,
	peerv1connect.PeerServiceProposeProcedure:       needMember,
	peerv1connect.PeerServiceReadMetaProcedure:      needMember,
	peerv1connect.PeerServiceReportProcedure:        needMember,
	peerv1connect.PeerServiceSizesProcedure:         needMember,
	peerv1connect.PeerServiceHandOverProcedure:      needMember,
	peerv1connect.PeerServiceCompareRowsProcedure:   needMember,
	peerv1connect.PeerServicePrepareProcedure:       needMember,
	peerv1connect.PeerServiceAwaitBindingsProcedure: needMember,
	peerv1connect.PeerServiceCountsProcedure:        needMember,
	peerv1connect.PeerServiceGetBlobProcedure:       needMember,
	peerv1connect.PeerServicePutBlobProcedure:       needMember,

	peerv1connect.ForwardServiceForwardProcedure: needMember,

	peerv1connect.TransferServiceHoldProcedure:        needMember,
	peerv1connect.TransferServiceCutProcedure:         needMember,
	peerv1connect.TransferServiceConfirmProcedure:     needMember,
	peerv1connect.TransferServiceReleaseProcedure:     needMember,
	peerv1connect.TransferServiceReadCutProcedure:     needMember,
	peerv1connect.TransferServiceImportStateProcedure: needMember,
	peerv1connect.TransferServiceImportChunkProcedure: needMember,
}
