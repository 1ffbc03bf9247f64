package raftgroup

// send puts messages into frames, one stream of them for each node, and gives
// them to the transport. Order between two nodes is kept within a call.
func (d *Driver) send(messages []Message) {
	if len(messages) == 0 || d.opts.Transport == nil {
		return
	}
	for i := range messages {
		p := messages[i].to
		if p.frame == nil {
			p.frame = beginFrame(make([]byte, 0, p.hint))
			d.peers = append(d.peers, p)
		}
		p.frame = appendMessage(p.frame, &messages[i])
		if len(p.frame) >= d.opts.MaxFrameBytes {
			d.emit(p)
			p.frame = beginFrame(nil)
		}
	}
	for _, p := range d.peers {
		if len(p.frame) > frameHeadBytes {
			d.emit(p)
		}
		p.frame = nil
	}
	d.peers = d.peers[:0]
}

// emit gives a node's frame to the transport, whose it is from then on.
func (d *Driver) emit(p *peer) {
	p.hint = len(p.frame) + len(p.frame)/4
	d.core.stats.FramesSent++
	d.core.stats.BytesSent += uint64(len(p.frame))
	d.opts.Transport.Send(p.node, endFrame(p.frame))
}

// EncodeFrame returns a frame of the messages.
func EncodeFrame(messages []Message) []byte {
	b := beginFrame(nil)
	for i := range messages {
		b = appendMessage(b, &messages[i])
	}
	return endFrame(b)
}
