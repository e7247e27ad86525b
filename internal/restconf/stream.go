// SPDX-License-Identifier: Apache-2.0

package restconf

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"coelan.io/coelan/internal/restconf/datatree"
	"coelan.io/coelan/internal/restconf/mapping"
)

const eventStream = "text/event-stream"

// The streams, by the datastores of RFC 8342 that they are about.
var streamNames = []struct{ name, description string }{
	{"operational", "Changes of what is in operation"},
	{"running", "Changes of the configuration"},
}

// Bounds of one stream.
const (
	// streamFor is how long it lasts; then the client opens it anew.
	streamFor = time.Hour
	beatEvery = 15 * time.Second
	// sendTimeout is how long a client may take to receive what there is.
	sendTimeout = 10 * time.Second
	maxEdits    = 256
)

// entries are those of a list, as JSON, by their paths; lists have them by their containers.
type (
	entries map[string]string
	lists   map[string]entries
)

// isStream returns the name of the stream that a path leads to.
func isStream(path string) (string, bool) {
	rest, ok := cutRoot(path)
	if !ok {
		return "", false
	}
	return strings.CutPrefix(rest, "streams/")
}

// stream sends a user what changes in a datastore (RFC 8040, section 6), until the request ends.
func (h *handler) stream(w http.ResponseWriter, r *http.Request, user Identity, name string) error {
	if err := checkStream(w, r, name); err != nil || r.Method == http.MethodOptions {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), streamFor)
	defer cancel()
	after, leave, err := h.streams.join(user.Name)
	if err != nil {
		return err
	}
	defer leave()
	s := &eventWriter{w: w, control: http.NewResponseController(w)}
	// The bounds that the server has for requests are not for streams.
	if err := s.control.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	c := subscriber{h: h, r: r, user: user, operational: name == "operational"}
	if after, err = c.first(ctx, after); err != nil {
		return err
	}
	why, err := "", s.open()
	if err == nil {
		why, err = c.follow(ctx, s, after)
	}
	if err == nil {
		err = s.write(": ended: " + why + "\n\n")
	}
	if err != nil && r.Context().Err() == nil {
		// The client lacks something of what it was sent: that must not look like an end.
		h.log.Debug("RESTCONF stream cut off", "user", user.Name, "stream", name, "err", err)
		panic(http.ErrAbortHandler)
	}
	return nil
}

// checkStream refuses requests that streams are not for.
func checkStream(w http.ResponseWriter, r *http.Request, name string) error {
	known := false
	for _, s := range streamNames {
		known = known || s.name == name
	}
	switch {
	case !known:
		return datatree.NotFound("")
	case r.Method == http.MethodOptions:
		w.Header().Set("Allow", "GET, OPTIONS")
		w.WriteHeader(http.StatusOK)
		return nil
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", "GET, OPTIONS")
		return &datatree.Error{Tag: datatree.OperationNotSupported, Status: http.StatusMethodNotAllowed,
			Message: "the method " + r.Method + " is not for streams"}
	case r.URL.RawQuery != "":
		return datatree.Fail(datatree.InvalidValue, "", "streams have no query parameters: there is no filter and no replay")
	}
	header := strings.Join(r.Header.Values("Accept"), ",")
	for part := range strings.SplitSeq(cmp.Or(header, eventStream), ",") {
		media, parameters, err := mime.ParseMediaType(strings.TrimSpace(part))
		if err == nil && parameters["q"] != "0" && slices.Contains([]string{eventStream, "text/*", "*/*"}, media) {
			return nil
		}
	}
	return &datatree.Error{Tag: datatree.InvalidValue, Status: http.StatusNotAcceptable,
		Message: "streams are of type " + eventStream}
}

// subscriber is what one stream is for.
type subscriber struct {
	h           *handler
	r           *http.Request
	user        Identity
	operational bool
	// has are the entries that the client knows; patches counts notifications.
	has     lists
	patches int
}

// first takes the entries that there are: what changes after that is sent.
func (c *subscriber) first(ctx context.Context, after uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	at, err := c.h.streams.next(ctx, after, nil, nil)
	switch {
	case errors.Is(err, errStreamsEnded):
		return 0, &datatree.Error{
			Tag: datatree.ResourceDenied, Status: http.StatusServiceUnavailable, Message: err.Error(),
		}
	case err != nil:
		return 0, fmt.Errorf("objects of a stream: %w", err)
	}
	if err := c.h.data.access.mayReadAny(ctx, c.user, at.world, c.h.data.selected(nil)); err != nil {
		return 0, err
	}
	c.has, err = c.see(ctx, at)
	return at.number, err
}

// follow sends changes until the stream is to end, and returns why it does.
func (c *subscriber) follow(ctx context.Context, s *eventWriter, after uint64) (why string, err error) {
	beats := time.NewTicker(beatEvery)
	defer beats.Stop()
	for {
		at, err := c.h.streams.next(ctx, after, beats.C, func() error { return s.write(":\n\n") })
		switch {
		case errors.Is(err, errStreamsEnded):
			return err.Error(), nil
		case ctx.Err() != nil && c.r.Context().Err() == nil:
			return "streams last for " + streamFor.String(), nil
		case err != nil:
			return "", err
		}
		after = at.number
		// The password or token may have been revoked.
		if _, err := c.h.auth.identify(c.r); err != nil {
			return "the credentials cannot be verified any more", nil
		}
		now, err := c.see(ctx, at)
		if err != nil {
			c.h.log.Warn("RESTCONF stream ended", "user", c.user.Name, "err", err)
			return "the rights of the user cannot be verified", nil
		}
		edits := difference(c.has, now)
		c.has = now
		for part := range slices.Chunk(edits, maxEdits) {
			c.patches++
			if err := s.notify(time.Now(), c.patches, part); err != nil {
				return "", err
			}
		}
	}
}

// see are the entries of a snapshot that the client may read now.
func (c *subscriber) see(ctx context.Context, at *snapshot) (lists, error) {
	d := c.h.data
	all := d.selected(nil)
	seen, err := d.access.visible(ctx, c.user, at.world, all, false)
	if err != nil {
		return nil, err
	}
	if seen.Size() < at.world.Size() {
		return c.render(seen, all, lists{}), nil
	}
	at.mu.Lock()
	defer at.mu.Unlock()
	return c.render(seen, all, at.rendered[c.operational]), nil
}

// render completes lists of entries.
func (c *subscriber) render(w *mapping.World, all []*mapping.List, rendered lists) lists {
	began := time.Now()
	for _, l := range all {
		if _, done := rendered[l.Container]; !done {
			rendered[l.Container] = c.h.data.render(w, l, c.operational)
		}
	}
	c.h.streams.worked(time.Since(began))
	return rendered
}

// render are the entries of a list, of configuration without state.
func (d *datastore) render(w *mapping.World, l *mapping.List, operational bool) entries {
	all := entries{}
	content := datatree.Query{Content: datatree.Config}
	if operational {
		content.Content = datatree.All
	}
	node := d.node(l)
	list, _ := holder(d.tree(w, []*mapping.List{l}, operational, nil), l)[l.Name].([]any)
	for _, e := range list {
		entry, ok := content.Select(node, e).(map[string]any)
		if !ok {
			continue // the list is state
		}
		text, err := json.Marshal(datatree.Qualify(node, []any{entry}))
		if err != nil {
			d.log.Warn("RESTCONF leaves out an object of a stream", "err", err)
			continue
		}
		all[datatree.EntryPath(node, datatree.SplitKey(node, datatree.Key(node, entry))...).URI()] = string(text)
	}
	return all
}

// edit is one of a YANG patch (RFC 8072, section 2.3).
type edit struct {
	ID        string          `json:"edit-id"`
	Operation string          `json:"operation"`
	Target    string          `json:"target"`
	Value     json.RawMessage `json:"value,omitempty"`
}

// difference are the edits that lead from some entries to others, in the order of their paths. Both
// have all lists.
func difference(from, to lists) []edit {
	var list []edit
	for container, now := range to {
		before := from[container]
		for path, value := range now {
			switch old, there := before[path]; {
			case !there:
				list = append(list, edit{Operation: "create", Target: path, Value: json.RawMessage(value)})
			case old != value:
				list = append(list, edit{Operation: "replace", Target: path, Value: json.RawMessage(value)})
			}
		}
		for path := range before {
			if _, there := now[path]; !there {
				list = append(list, edit{Operation: "delete", Target: path})
			}
		}
	}
	slices.SortFunc(list, func(a, b edit) int { return cmp.Compare(a.Target, b.Target) })
	for i := range list {
		list[i].ID = strconv.Itoa(i + 1)
	}
	return list
}

// eventWriter sends server-sent events.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// open starts the answer.
func (s *eventWriter) open() error {
	s.w.Header().Set("Content-Type", eventStream)
	s.w.WriteHeader(http.StatusOK)
	return s.write(":\n\n")
}

// notify sends a push-change-update (RFC 8641, section 4.4) as the notification of RFC 8040,
// section 6.4.
func (s *eventWriter) notify(at time.Time, number int, edits []edit) error {
	var b bytes.Buffer
	b.WriteString("data: ")
	encoder := json.NewEncoder(&b) // it ends with a newline, and has none before
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(map[string]any{"ietf-restconf:notification": map[string]any{
		"eventTime": at.UTC().Format(time.RFC3339Nano),
		"ietf-yang-push:push-change-update": map[string]any{"datastore-changes": map[string]any{
			"yang-patch": map[string]any{"patch-id": strconv.Itoa(number), "edit": edits},
		}},
	}})
	if err != nil {
		return err
	}
	return s.write(b.String() + "\n")
}

// write sends a text at once. A client that does not take it is given up.
func (s *eventWriter) write(text string) error {
	err := s.control.SetWriteDeadline(time.Now().Add(sendTimeout))
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.control.Flush()
}
