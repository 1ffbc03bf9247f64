package raftgroup

// counters are what a Core and its Driver count from their start on.
type counters struct {
	// Elections were won here; Campaigns were begun because a leader's node
	// went silent.
	Elections, Campaigns uint64
	// MessagesSent went into frames; MessagesUnlocated were dropped because
	// nobody knew their replica's node.
	MessagesSent, MessagesUnlocated uint64
	// MessagesReceived were for a replica here; MessagesRefused were not.
	MessagesReceived, MessagesRefused uint64
	FramesSent, BytesSent             uint64
}
