package bench

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
)

// echo answers every command with its own payload at once, to measure the cost
// of a call whose server does nothing.
type echo struct {
	entityv1connect.UnimplementedEntityServiceHandler
}

func (echo) SendCommand(_ context.Context, req *connect.Request[entityv1.SendCommandRequest]) (*connect.Response[entityv1.SendCommandResponse], error) {
	return connect.NewResponse(&entityv1.SendCommandResponse{Payload: &entityv1.SendCommandResponse_Data{Data: req.Msg.GetData()}}), nil
}

// ServeEcho serves the echo on the listener until ctx ends.
func ServeEcho(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle(entityv1connect.NewEntityServiceHandler(echo{}, connect.WithReadMaxBytes(1<<20), connect.WithCompression("gzip", nil, nil)))
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Handler: mux, Protocols: protocols, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	if err := s.Serve(l); err != http.ErrServerClosed {
		return fmt.Errorf("echo: %w", err)
	}
	return nil
}
