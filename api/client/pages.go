package client

// pages returns the items of all pages of a listing. ask returns those of the
// page with a token, the empty one for the first, and the token of the next.
func pages[T any](ask func(token string) (items []T, next string, err error)) (all []T, err error) {
	for token := ""; ; {
		items, next, err := ask(token)
		if err != nil {
			return nil, err
		}
		all = append(all, items...)
		if token = next; token == "" {
			return all, nil
		}
	}
}
