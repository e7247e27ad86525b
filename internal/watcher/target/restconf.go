// SPDX-License-Identifier: Apache-2.0

// Package target has what a watcher can write to: a RESTCONF controller, and a stream of text.
package target

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"coelan.io/coelan/internal/watcher/coe"
	"coelan.io/coelan/internal/watcher/mirror"
)

// Access is how to reach a RESTCONF controller.
type Access struct {
	// URL is scheme, host and port.
	URL string
	// Root is the path of the configuration: /restconf/config of controllers from before RFC 8040,
	// or an RFC 8040 datastore, which ends with /data.
	Root               string
	Username, Password string
	// CAFile has the authorities of the controller's certificate; empty: those of the system.
	CAFile string
}

const (
	requestTimeout = 30 * time.Second
	// maxAnswer is the largest answer that is read.
	maxAnswer = 256 << 20
	// maxReason is how much of an error's text is shown.
	maxReason = 500
)

// RESTCONF is a controller that keeps COE's models. NewRESTCONF makes it.
type RESTCONF struct {
	access  Access
	base    string
	rfc8040 bool
	client  *http.Client
}

// NewRESTCONF checks the access; it connects to nothing. connections is how many requests are sent
// at the same time.
func NewRESTCONF(a Access, connections int) (*RESTCONF, error) {
	u, err := url.Parse(a.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" ||
		u.RawQuery != "" {
		return nil, fmt.Errorf("host %q: want http://HOST:PORT or https://HOST:PORT", a.URL)
	}
	if !strings.HasPrefix(a.Root, "/") {
		return nil, fmt.Errorf("root %q: want a path such as /restconf/config or /rests/data", a.Root)
	}
	root := strings.TrimRight(a.Root, "/")
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: requestTimeout}).DialContext,
		MaxIdleConnsPerHost: connections, IdleConnTimeout: 2 * requestTimeout, TLSHandshakeTimeout: requestTimeout,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
	}
	if a.CAFile != "" {
		pem, err := os.ReadFile(a.CAFile)
		if err != nil {
			return nil, fmt.Errorf("caFile: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("caFile %s has no certificate in PEM", a.CAFile)
		}
		transport.TLSClientConfig.RootCAs = pool
	}
	return &RESTCONF{
		access: a, base: u.Scheme + "://" + u.Host + root, rfc8040: strings.HasSuffix(root, "/data"),
		client: &http.Client{
			Transport: transport, Timeout: requestTimeout,
			// Most redirections make a GET of a PUT: its success would mean nothing.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// PlainText says that the password goes over a network as it is.
func (r *RESTCONF) PlainText() bool {
	u, err := url.Parse(r.base)
	if err != nil || u.Scheme == "https" {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback())
}

// Read implements mirror.Target. A controller answers 404 to a list without entries, and in several
// ways to a model that it does not have: then it refuses each entry.
func (r *RESTCONF) Read(ctx context.Context, list *coe.List) (map[string]coe.Remote, error) {
	path := "/" + list.Module + ":" + list.Container
	if r.rfc8040 {
		path += "?content=config"
	}
	body, status, err := r.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	switch {
	case status == http.StatusNotFound, status == http.StatusBadRequest, status == http.StatusMethodNotAllowed,
		status == http.StatusNotImplemented, status/100 == 2 && len(body) == 0:
		return nil, nil
	case status/100 != 2:
		return nil, answerError(http.MethodGet, path, status, body)
	}
	return list.Read(body)
}

// Put implements mirror.Target.
func (r *RESTCONF) Put(ctx context.Context, ref mirror.Ref, e coe.Entry) error {
	body, err := ref.List.Body(e)
	if err != nil {
		return &mirror.RefusedError{Err: err}
	}
	return r.edit(ctx, http.MethodPut, ref, body, 0)
}

// Delete implements mirror.Target.
func (r *RESTCONF) Delete(ctx context.Context, ref mirror.Ref) error {
	return r.edit(ctx, http.MethodDelete, ref, nil, http.StatusNotFound)
}

// edit sends an edit of an entry. also is a status that is no error, either.
func (r *RESTCONF) edit(ctx context.Context, method string, ref mirror.Ref, body []byte, also int) error {
	path := r.path(ref)
	answer, status, err := r.do(ctx, method, path, body)
	switch {
	case err != nil:
		return err
	case status/100 == 2 || status == also:
		return nil
	}
	err = answerError(method, path, status, answer)
	if status/100 == 3 { //nolint:mnd // a redirection
		return fmt.Errorf("%w; want its own URL", err)
	}
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooManyRequests,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return err // of the controller, or of the access to it
	}
	return &mirror.RefusedError{Err: err}
}

// path is an entry's, below the root.
func (r *RESTCONF) path(ref mirror.Ref) string {
	separator := "/"
	if r.rfc8040 {
		separator = "="
	}
	l := ref.List
	return "/" + l.Module + ":" + l.Container + "/" + l.Name + separator + url.PathEscape(ref.Key)
}

func (r *RESTCONF) do(ctx context.Context, method, path string, body []byte) (answer []byte, status int, err error) {
	request, err := http.NewRequestWithContext(ctx, method, r.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, 0, err
	}
	mediaType := "application/json"
	if r.rfc8040 {
		mediaType = "application/yang-data+json"
	}
	request.Header.Set("Accept", mediaType)
	if body != nil {
		request.Header.Set("Content-Type", mediaType)
	}
	if r.access.Username != "" {
		request.SetBasicAuth(r.access.Username, r.access.Password)
	}
	response, err := r.client.Do(request)
	if err != nil {
		return nil, 0, err
	}
	answer, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err == nil && len(answer) > maxAnswer {
		err = errors.New("the answer is too long")
	}
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return nil, 0, fmt.Errorf("%s %s: %w", method, r.base+path, err)
	}
	return answer, response.StatusCode, nil
}

// answerError shows the controller's own words.
func answerError(method, path string, status int, body []byte) error {
	reason := strings.Join(strings.Fields(strings.ToValidUTF8(string(body), "?")), " ")
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "") + "…"
	}
	return fmt.Errorf("%s %s: the controller answers %d %s: %s", method, path, status, http.StatusText(status), reason)
}
