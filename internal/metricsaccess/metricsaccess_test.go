// SPDX-License-Identifier: Apache-2.0

package metricsaccess

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// api is a Kubernetes API that knows the token of each user, "token-USER", and
// lets reader get /metrics.
type api struct {
	*Guard
	mu      sync.Mutex
	away    bool
	revoked bool
	reviews int // of tokens
}

func newAPI() *api {
	a := &api{}
	client := fake.NewClientset()
	client.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.reviews++
		if a.away {
			return true, nil, errors.New("connection refused")
		}
		review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview)
		if user, ok := strings.CutPrefix(review.Spec.Token, "token-"); ok {
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{
				Username: user, Groups: []string{"g"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}},
			}}
		}
		return true, review, nil
	})
	client.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		s := review.Spec
		review.Status.Allowed = s.User == "reader" && len(s.Groups) == 1 && len(s.Extra["k"]) == 1 && !a.revoked &&
			*s.NonResourceAttributes == authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}
		return true, review, nil
	})
	a.Guard = NewGuard(slog.New(slog.DiscardHandler), client.AuthenticationV1().TokenReviews(), client.AuthorizationV1().SubjectAccessReviews())
	return a
}

func (a *api) set(away, revoked bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.away, a.revoked = away, revoked
}

func (a *api) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reviews
}

// get is the code of the answer to a request with that Authorization.
func (a *api) get(path, authorization string) int {
	h := a.Protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "secret") }))
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, path, nil)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if strings.Contains(w.Body.String(), "secret") != (w.Code == http.StatusOK) {
		panic(w.Body.String())
	}
	return w.Code
}

func TestClients(t *testing.T) {
	tests := []struct {
		name, path, authorization string
		away                      bool
		code, reviews             int
	}{
		{"a reader", "/metrics", "Bearer token-reader", false, 200, 1},
		{"another user", "/metrics", "Bearer token-tenant", false, 403, 1},
		{"an unknown token", "/metrics", "Bearer x", false, 401, 1},
		{"no token", "/metrics", "", false, 401, 0},
		{"an empty token", "/metrics", "Bearer ", false, 401, 0},
		{"a password", "/metrics", "Basic token-reader", false, 401, 0},
		{"too long a token", "/metrics", "Bearer " + strings.Repeat("x", maxToken+1), false, 401, 0},
		{"a probe", "/healthz", "", false, 200, 0},
		{"a reader while the API is away", "/metrics", "Bearer token-reader", true, 503, 1},
		{"a probe while the API is away", "/readyz", "", true, 200, 0},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			a := newAPI()
			a.set(tc.away, false)
			if code := a.get(tc.path, tc.authorization); code != tc.code || a.count() != tc.reviews {
				t.Errorf("answer %d after %d reviews, want %d after %d", code, a.count(), tc.code, tc.reviews)
			}
		})
	}
}

// An answer is cached for a while; after that, no client is allowed while the API server is away.
func TestAnswersHoldForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		check := func(what, user string, code, reviews int) {
			t.Helper()
			if got := a.get("/metrics", "Bearer token-"+user); got != code || a.count() != reviews {
				t.Errorf("%s: answer %d after %d reviews, want %d after %d", what, got, a.count(), code, reviews)
			}
		}
		check("first", "reader", 200, 1)
		check("again", "reader", 200, 1)
		a.set(true, false)
		check("the API is away", "reader", 200, 1)
		time.Sleep(allowedFor + time.Second)
		check("for longer", "reader", 503, 2)
		a.set(false, true)
		check("it is back and the right is gone", "reader", 403, 3)
		check("again", "reader", 403, 3)
		a.set(false, false)
		time.Sleep(deniedFor + time.Second)
		check("and there again", "reader", 200, 4)
	})
}

// A flood of unknown tokens causes few reviews, and does not keep out clients
// that were allowed before.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		if code := a.get("/metrics", "Bearer token-reader"); code != 200 {
			t.Fatal(code)
		}
		refused := 0
		for i := range 10000 {
			if a.get("/metrics", fmt.Sprintf("Bearer x%d", i)) == http.StatusTooManyRequests {
				refused++
			}
		}
		if n := a.count(); n > strangersBurst || refused < 10000-strangersBurst {
			t.Errorf("%d reviews, %d refusals", n, refused)
		}
		// The answer for the reader does not hold any more, and strangers have
		// taken all reviews again.
		time.Sleep(allowedFor + time.Second)
		for i := range 100 {
			a.get("/metrics", fmt.Sprintf("Bearer y%d", i))
		}
		if code := a.get("/metrics", "Bearer token-reader"); code != 200 {
			t.Errorf("the reader gets %d", code)
		}
		if code := a.get("/metrics", "Bearer token-tenant"); code != http.StatusTooManyRequests {
			t.Errorf("another client gets %d", code)
		}
	})
}

// By TLS alone: a token is not sent in the clear.
func TestSecure(t *testing.T) {
	plain, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := Secure(plain)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }),
		ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	go func() { _ = srv.Serve(l) }()
	defer srv.Close()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // as kubelet's probes do
	defer transport.CloseIdleConnections()
	for scheme, want := range map[string]string{"https": "200 ok", "http": "400 Client sent an HTTP request to an HTTPS server.\n"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, scheme+"://"+plain.Addr().String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if got := fmt.Sprintf("%d %s", answer.StatusCode, text); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", scheme, got, err, want)
		}
	}
}
