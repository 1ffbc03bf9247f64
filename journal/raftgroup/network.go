package raftgroup

import (
	"github.com/hostd/hostd/sharding"
)

// send puts messages into frames, one stream of them for each node, and gives
// them to the transport. Order between two nodes is kept within a call.
func (d *Driver) send(messages []Message) {
	if len(messages) == 0 || d.opts.Transport == nil {
		return
	}
	for i := range messages {
		m := &messages[i]
		node, ok := d.opts.Locate(m.Shard, sharding.ReplicaID(m.Raft.GetTo()))
		if !ok {
			continue
		}
		frame := d.frames[node]
		if frame == nil {
			frame = beginFrame(nil)
			d.nodes = append(d.nodes, node)
		}
		frame = appendMessage(frame, m)
		if len(frame) >= d.opts.MaxFrameBytes {
			d.opts.Transport.Send(node, endFrame(frame))
			frame = beginFrame(nil)
		}
		d.frames[node] = frame
	}
	for _, node := range d.nodes {
		if frame := d.frames[node]; len(frame) > frameHeadBytes {
			d.opts.Transport.Send(node, endFrame(frame))
		}
		delete(d.frames, node)
	}
	d.nodes = d.nodes[:0]
}

// EncodeFrame returns a frame of the messages.
func EncodeFrame(messages []Message) []byte {
	b := beginFrame(nil)
	for i := range messages {
		b = appendMessage(b, &messages[i])
	}
	return endFrame(b)
}
