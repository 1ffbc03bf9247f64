package outside

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/hostd/hostd/api/client"
)

// act has done outside what payments ask for, from where an earlier run came
// to, until ctx ends or something fails: then run it again.
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
			// The same event has the same names, however often it comes.
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
