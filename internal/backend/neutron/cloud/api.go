// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/gophercloud/gophercloud/v2"
)

// pageSize is how many resources a list asks for at once.
const pageSize = 500

// send makes one call. Its error is a *refusal, a *busy or an *outage.
func send(ctx context.Context, api *gophercloud.ServiceClient, method, path string, body, answer any) error {
	options := &gophercloud.RequestOpts{
		JSONBody: body, JSONResponse: answer,
		OkCodes: []int{http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent},
	}
	_, err := api.Request(ctx, method, api.ServiceURL(path), options) //nolint:bodyclose // the library closes it
	if err != nil {
		return classify(err, time.Now())
	}
	return nil
}

// list returns all items that a filter leaves, page by page, each of which get reads. Plural is
// what an answer calls them.
func list[T any](get func(path string, into any) error, path, plural string, filter url.Values) ([]T, error) {
	query := maps.Clone(filter)
	if query == nil {
		query = url.Values{}
	}
	query.Set("limit", strconv.Itoa(pageSize))
	var all []T
	for {
		var page map[string]json.RawMessage
		if err := get(path+"?"+query.Encode(), &page); err != nil {
			return nil, err
		}
		var items []json.RawMessage
		var links []struct{ Rel string }
		var last struct{ ID string }
		if err := json.Unmarshal(page[plural], &items); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if text, there := page[plural+"_links"]; there {
			if err := json.Unmarshal(text, &links); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
		}
		for _, text := range items {
			var item T
			if err := json.Unmarshal(text, &item); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			all = append(all, item)
		}
		next := slices.ContainsFunc(links, func(l struct{ Rel string }) bool { return l.Rel == "next" })
		if !next || len(items) == 0 {
			return all, nil
		}
		if err := json.Unmarshal(items[len(items)-1], &last); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		query.Set("marker", last.ID)
	}
}
