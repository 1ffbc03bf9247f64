package outside

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/hostd/hostd/api/client"
)

// act performs the external effects that payments request, starting at the
// position that an earlier run has stored. It returns when ctx ends or an error
// occurs; run it again after an error.
func act(ctx context.Context, c *client.Client, provider, placeFile string) error {
	var cursor string
	if err := load(placeFile, &cursor); err != nil {
		return err
	}
	for e, err := range c.Subscribe(ctx, client.Subscription{EntityType: "payment", Cursor: cursor, Follow: true}) {
		if err != nil {
			return err
		}
		if e.Type == "requested" {
			// The same event has the same key and command ID each time it arrives.
			key := fmt.Sprintf("payment/%s/%d", e.EntityID, e.Sequence)
			receipt, err := charge(ctx, provider, key, e.Data)
			if err != nil {
				return err
			}
			if _, err := c.Send(ctx, client.Command{EntityType: "payment", EntityID: e.EntityID, Name: "settle", Data: receipt, ID: key}); err != nil {
				return err
			}
		}
		if err := store(placeFile, e.Cursor()); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// charge calls the provider, which charges at most once per key.
func charge(ctx context.Context, provider, key string, body []byte) (json.RawMessage, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, provider, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Idempotency-Key", key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the provider answers %s", res.Status)
	}
	var receipt json.RawMessage
	return receipt, json.NewDecoder(res.Body).Decode(&receipt)
}
