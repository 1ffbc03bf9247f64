package peer

import (
	"github.com/hostd/hostd/api/gen/hostd/peer/v1/peerv1connect"
)

// need is what a procedure asks of the node that calls it, beside a certificate
// of the cluster where nodes speak TLS.
type need int

const (
	// needMember: the metadata has the node as a member. It is the strictest, and
	// so what a procedure needs that has no line in needs, and what the calls of
	// clients need that a node passes on.
	needMember need = iota
	// needStart: no operator has put this start of the node down, as far as the
	// metadata here goes. That is what raft needs: a node that was away knows
	// neither the members nor the leader that it is to catch up from. What such a
	// call brings is held to the replicas that are here.
	needStart
	// needNothing: whoever asks is answered, of whatever cluster and start.
	needNothing
)

// needs has what each procedure asks of its caller, beside those of needMember.
var needs = map[string]need{
	// A cluster is found, and founded, by nodes that belong to none. Vouch is
	// answered to any start, because that is what it asks.
	peerv1connect.PeerServiceProbeProcedure:  needNothing,
	peerv1connect.PeerServicePledgeProcedure: needNothing,
	peerv1connect.PeerServiceVouchProcedure:  needNothing,
	// Join is how a node becomes a member, and one again that was put down.
	peerv1connect.PeerServiceJoinProcedure: needStart,
	// Renew has the caller itself taken for dead, which it may be already.
	peerv1connect.PeerServiceRenewProcedure: needStart,
	// Frames and snapshots of raft.
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
