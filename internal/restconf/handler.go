// SPDX-License-Identifier: Apache-2.0

package restconf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/cache"

	"coelan.io/coelan/internal/restconf/datatree"
	"coelan.io/coelan/internal/reviews"
)

// Media types of RFC 8040, section 11.3.2, of the drafts before it, and plain JSON.
const (
	yangData       = "application/yang-data+json"
	formerYangData = "application/yang.data+json"
	plainJSON      = "application/json"
)

// Bounds of what one user, and all of them, have under way.
const (
	userPerSecond, userBurst = 500, 1000
	maxUnderWay              = 64
	maxUsers                 = 1024
)

// handler answers requests.
type handler struct {
	log  *slog.Logger
	auth *authenticator
	data *datastore
	// streams are for requests that wait for changes.
	streams *streams
	// underWay bounds how many requests are worked on; rates are those of users.
	underWay chan struct{}
	mu       sync.Mutex
	rates    *cache.LRUExpireCache
}

func newHandler(o Options) (*handler, error) {
	auth, err := newAuthenticator(o.Kubernetes, o.Namespace, o.Clients)
	if err != nil {
		return nil, err
	}
	return &handler{
		log: o.Log, auth: auth, streams: newStreams(o.Log, o.API),
		data:     newDatastore(o.Log, o.API, newAuthorizer(o.Kubernetes.AuthorizationV1().SubjectAccessReviews())),
		underWay: make(chan struct{}, maxUnderWay), rates: cache.NewLRUExpireCache(maxUsers),
	}, nil
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-cache")
	header.Set("X-Content-Type-Options", "nosniff")
	if r.URL.Path == "/.well-known/host-meta" {
		hostMeta(w, r)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	user, err := h.admit(r.WithContext(ctx))
	if err != nil {
		h.fail(w, r, err)
		return
	}
	if name, ok := isStream(r.URL.Path); ok {
		if err := h.stream(w, r, user, name); err != nil {
			h.fail(w, r, err)
		}
		return
	}
	r = r.WithContext(ctx)
	select {
	case h.underWay <- struct{}{}:
		defer func() { <-h.underWay }()
	case <-ctx.Done():
		h.fail(w, r, &datatree.Error{Tag: datatree.ResourceDenied, Status: http.StatusServiceUnavailable,
			Message: "too many requests are under way"})
		return
	}
	if err := h.route(w, r, user); err != nil {
		h.fail(w, r, err)
	}
}

// admit returns the user of a request that is within the rates.
func (h *handler) admit(r *http.Request) (Identity, error) {
	user, err := h.auth.identify(r)
	switch {
	case errors.Is(err, errUnauthenticated):
		return user, &datatree.Error{Tag: datatree.AccessDenied, Status: http.StatusUnauthorized, Message: err.Error()}
	case errors.Is(err, reviews.ErrTooMany):
		return user, &datatree.Error{
			Tag: datatree.ResourceDenied, Status: http.StatusTooManyRequests, Message: err.Error(),
		}
	case err != nil:
		return user, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	limit, _ := h.rates.Get(user.Name)
	if limit == nil {
		limit = rate.NewLimiter(userPerSecond, userBurst)
	}
	h.rates.Add(user.Name, limit, time.Hour)
	if !limit.(*rate.Limiter).Allow() {
		return user, &datatree.Error{Tag: datatree.ResourceDenied, Status: http.StatusTooManyRequests,
			Message: "the user sends too many requests"}
	}
	return user, nil
}

// cutRoot splits a path into the API's root and what follows.
func cutRoot(path string) (rest string, ok bool) {
	for _, root := range []string{"/restconf", "/rests"} {
		if path == root {
			return "", true
		}
		if rest, ok := strings.CutPrefix(path, root+"/"); ok {
			return rest, true
		}
	}
	return "", false
}

// route answers a request of a user. The path is taken as it was sent: %2F in a key is no slash.
func (h *handler) route(w http.ResponseWriter, r *http.Request, user Identity) error {
	rest, ok := cutRoot(r.URL.EscapedPath())
	if !ok {
		return datatree.NotFound("")
	}
	resource, below, _ := strings.Cut(rest, "/")
	q := request{user: user, ifMatch: r.Header.Get("If-Match"), ifNoneMatch: r.Header.Get("If-None-Match")}
	switch {
	case resource == "data":
		if value, known := h.static(r.Host, below); known {
			return answerStatic(w, r, value)
		}
	case resource == "config":
		q.former = true
	case resource == "operational":
		q.former, q.operational = true, true
	case resource == "ds" && (below == operationalDatastore || strings.HasPrefix(below, operationalDatastore+"/")):
		q.operational = true
		below = strings.TrimPrefix(below, operationalDatastore)
	default:
		value, known := h.api(rest)
		if !known {
			return datatree.NotFound("")
		}
		return answerStatic(w, r, value)
	}
	var err error
	if q.path, err = datatree.ParsePath(h.data.schema, below, q.former); err != nil {
		return err
	}
	return h.method(w, r, q)
}

// operationalDatastore is the name that RFC 8527 gives what is in operation.
const operationalDatastore = "ietf-datastores:operational"

// method does what the method says with a node.
func (h *handler) method(w http.ResponseWriter, r *http.Request, q request) error {
	switch r.Method {
	case http.MethodOptions:
		w.Header().Set("Allow", h.allowed(q))
		w.Header().Set("Accept-Patch", yangData)
		w.WriteHeader(http.StatusOK)
		return nil
	case http.MethodGet, http.MethodHead:
		return h.get(w, r, q)
	}
	edits := map[string]datatree.Edit{
		http.MethodPost: datatree.Create, http.MethodPut: datatree.Replace,
		http.MethodPatch: datatree.Merge, http.MethodDelete: datatree.Delete,
	}
	edit, known := edits[r.Method]
	if !known || !strings.Contains(h.allowed(q), r.Method) {
		w.Header().Set("Allow", h.allowed(q))
		return &datatree.Error{Tag: datatree.OperationNotSupported, Status: http.StatusMethodNotAllowed,
			Path: q.path.String(), Message: "the method " + r.Method + " is not for this node"}
	}
	if r.URL.RawQuery != "" {
		return datatree.Fail(datatree.InvalidValue, q.path.String(), "query parameters are not for edits of these models")
	}
	return h.edit(w, r, q, edit)
}

// allowed are the methods of a node.
func (h *handler) allowed(q request) string {
	target := q.path.Target(h.data.schema)
	switch {
	case q.operational || target.State:
		return "GET, HEAD, OPTIONS"
	case target.Parent == nil:
		return "GET, HEAD, OPTIONS, PATCH, POST"
	case target.Kind == datatree.Leaf || target.Kind == datatree.LeafList:
		return "DELETE, GET, HEAD, OPTIONS, PATCH, PUT"
	}
	return "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"
}

// get answers with a node's data.
func (h *handler) get(w http.ResponseWriter, r *http.Request, q request) error {
	target := q.path.Target(h.data.schema)
	query, err := datatree.ParseQuery(target, r.URL.RawQuery)
	if err != nil {
		return err
	}
	media, err := accepted(r, q.former)
	if err != nil {
		return err
	}
	value, tag, err := h.data.get(r.Context(), q)
	if err != nil {
		return err
	}
	if !q.operational {
		w.Header().Set("ETag", tag)
		if q.ifNoneMatch != "" && query.Content == datatree.Config && matches(q.ifNoneMatch, tag) {
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	value = query.Select(target, value)
	if value == nil {
		return datatree.NotFound(q.path.String())
	}
	return answer(w, r, http.StatusOK, media, datatree.Qualify(target, value))
}

// edit writes a node.
func (h *handler) edit(w http.ResponseWriter, r *http.Request, q request, edit datatree.Edit) error {
	var body any
	if edit != datatree.Delete {
		var err error
		if body, err = readBody(w, r); err != nil {
			return err
		}
	}
	done, err := h.data.edit(r.Context(), q, edit, body)
	if err != nil {
		return err
	}
	if done.tag != "" {
		w.Header().Set("ETag", done.tag)
	}
	switch {
	case q.former && edit == datatree.Create:
		w.WriteHeader(http.StatusNoContent)
	case q.former:
		// The watcher of COE takes 200 alone for success.
		w.WriteHeader(http.StatusOK)
	case edit == datatree.Create:
		root := "/restconf"
		if strings.HasPrefix(r.URL.Path, "/rests/") {
			root = "/rests"
		}
		w.Header().Set("Location", "https://"+r.Host+root+"/data"+done.location)
		w.WriteHeader(http.StatusCreated)
	case done.created:
		w.WriteHeader(http.StatusCreated)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
	return nil
}

// readBody reads a body of a known type.
func readBody(w http.ResponseWriter, r *http.Request) (any, error) {
	// A page of another site cannot have a browser send one of these types by itself.
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != yangData && media != formerYangData && media != plainJSON {
		return nil, &datatree.Error{Tag: datatree.OperationNotSupported, Status: http.StatusUnsupportedMediaType,
			Message: "the body is not of type " + yangData}
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, datatree.MaxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, datatree.Fail(datatree.TooBig, "", "the body is larger than 4 MiB")
	case err != nil:
		return nil, datatree.Fail(datatree.MalformedMessage, "", "the body ended too early")
	}
	return datatree.Decode(text)
}

// accepted is the media type of the answer to a request.
func accepted(r *http.Request, former bool) (string, error) {
	usual := yangData
	if former {
		usual = plainJSON
	}
	header := strings.Join(r.Header.Values("Accept"), ",")
	if header == "" {
		return usual, nil
	}
	for part := range strings.SplitSeq(header, ",") {
		media, parameters, err := mime.ParseMediaType(strings.TrimSpace(part))
		if err != nil || parameters["q"] == "0" {
			continue
		}
		switch media {
		case yangData, formerYangData, plainJSON:
			return media, nil
		case "*/*", "application/*":
			return usual, nil
		}
	}
	return "", &datatree.Error{Tag: datatree.InvalidValue, Status: http.StatusNotAcceptable,
		Message: "answers are of type " + yangData}
}

// answer writes a message; of HEAD, its header alone.
func answer(w http.ResponseWriter, r *http.Request, status int, media string, message any) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", media)
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(append(text, '\n')) // a client that is gone needs no answer
	}
	return nil
}

// fail answers with an error (RFC 8040, section 7.1).
func (h *handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	var e *datatree.Error
	if !errors.As(err, &e) {
		h.log.Warn("RESTCONF request failed", "method", r.Method, "path", r.URL.Path, "err", err)
		e = &datatree.Error{Tag: datatree.OperationFailed, Status: http.StatusServiceUnavailable,
			Message: "the Kubernetes API did not answer as expected, the controller's log says how"}
		if errors.Is(err, context.DeadlineExceeded) {
			e.Message = fmt.Sprintf("the request was not done after %v: an edit may be done or not", requestTimeout)
		}
	}
	one := map[string]any{"error-type": "application", "error-tag": string(e.Tag), "error-message": e.Message}
	if e.Tag == datatree.MalformedMessage || e.Path == "" {
		one["error-type"] = "protocol"
	}
	if e.Path != "" {
		one["error-path"] = e.Path
	}
	if e.HTTPStatus() == http.StatusUnauthorized {
		w.Header().Add("WWW-Authenticate", `Basic realm="RESTCONF", charset="UTF-8"`)
		w.Header().Add("WWW-Authenticate", "Bearer")
	}
	message := map[string]any{"ietf-restconf:errors": map[string]any{"error": []any{one}}}
	if err := answer(w, r, e.HTTPStatus(), yangData, message); err != nil {
		h.log.Warn("cannot write a RESTCONF error", "err", err)
	}
}
