package raftgroup

import (
	"github.com/hostd/hostd/sharding"
)

// send puts messages into frames, one stream of them for each node, and gives
// them to the transport. Order between two nodes is kept within a call.
func (l *Loop) send(messages []Message) {
	if len(messages) == 0 || l.opts.Transport == nil {
		return
	}
	for i := range messages {
		m := &messages[i]
		node, ok := l.opts.Locate(m.Shard, sharding.ReplicaID(m.Raft.GetTo()))
		if !ok {
			continue
		}
		frame := l.frames[node]
		if frame == nil {
			frame = beginFrame(nil)
			l.nodes = append(l.nodes, node)
		}
		frame = appendMessage(frame, m)
		if len(frame) >= l.opts.MaxFrameBytes {
			l.opts.Transport.Send(node, endFrame(frame))
			frame = beginFrame(nil)
		}
		l.frames[node] = frame
	}
	for _, node := range l.nodes {
		if frame := l.frames[node]; len(frame) > frameHeadBytes {
			l.opts.Transport.Send(node, endFrame(frame))
		}
		delete(l.frames, node)
	}
	l.nodes = l.nodes[:0]
}

// EncodeFrame returns a frame of the messages.
func EncodeFrame(messages []Message) []byte {
	b := beginFrame(nil)
	for i := range messages {
		b = appendMessage(b, &messages[i])
	}
	return endFrame(b)
}
