// SPDX-License-Identifier: Apache-2.0

// Package metricsaccess protects /metrics: a TokenReview authenticates the bearer token, a
// SubjectAccessReview authorizes its user to get the path. Any client may try, so the number of
// reviews is bounded.
package metricsaccess

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"coelan.io/coelan/internal/reviews"
)

// Access says which clients may read the metrics.
type Access string

// The answers.
const (
	// Those that the Kubernetes API authorizes to get /metrics, by HTTPS.
	Authorized Access = "authorized"
	Open       Access = "open" // all that reach the port, by HTTP
)

// Path is what clients have to be authorized for. It is a nonResourceURL of ClusterRoles.
const Path = "/metrics"

// limits bound what clients can cause.
var limits = reviews.Limits{
	Accepted: allowedFor, Refused: deniedFor, Strangers: strangersPerSecond, Burst: strangersBurst,
}

const (
	allowedFor                         = time.Minute
	deniedFor                          = 30 * time.Second
	strangersPerSecond, strangersBurst = 5, 10
	maxToken                           = 16 << 10
)

// Guard protects handlers. It is safe for concurrent use.
type Guard struct {
	log    *slog.Logger
	tokens authentication.TokenReviewInterface
	access authorization.SubjectAccessReviewInterface
	// reviewed are answers, by token; nil is that of clients that may.
	reviewed *reviews.Cache[*refusal]
}

// NewGuard asks that API.
func NewGuard(log *slog.Logger, tokens authentication.TokenReviewInterface,
	access authorization.SubjectAccessReviewInterface,
) *Guard {
	return &Guard{log: log, tokens: tokens, access: access, reviewed: reviews.New[*refusal](limits)}
}

// refusal is an answer other than the metrics.
type refusal struct {
	code int
	text string
}

func (r *refusal) Error() string { return r.text }

// Protect lets requests of Path reach the handler if their client is authorized. Requests
// of other paths pass.
func (g *Guard) Protect(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != Path {
			h.ServeHTTP(w, r)
			return
		}
		err := g.check(r)
		var no *refusal
		switch {
		case err == nil:
			h.ServeHTTP(w, r)
		case errors.As(err, &no):
			if no.code == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", "Bearer")
			}
			http.Error(w, no.text, no.code)
		default:
			g.log.Warn("cannot authenticate or authorize a client of /metrics", "err", err)
			http.Error(w, "the Kubernetes API does not say whether the client is authorized",
				http.StatusServiceUnavailable)
		}
	})
}

// check returns nil for a client that may read the metrics, a *refusal for one that may not, and
// another error if it is not known.
func (g *Guard) check(r *http.Request) error {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || token == "" || len(token) > maxToken {
		return &refusal{http.StatusUnauthorized, "the request has no bearer token"}
	}
	v, err := g.reviewed.Of(r.Context(), token, func(ctx context.Context) (reviews.Verdict[*refusal], error) {
		no, err := g.review(ctx, token)
		return reviews.Verdict[*refusal]{Accepted: no == nil, Answer: no}, err
	})
	switch {
	case errors.Is(err, reviews.ErrTooMany):
		return &refusal{http.StatusTooManyRequests, "too many tokens wait to be reviewed, try again"}
	case err != nil:
		return err
	case v.Answer != nil:
		return v.Answer
	}
	return nil
}

// review asks the API. The refusal is nil for a client that is authorized.
func (g *Guard) review(ctx context.Context, token string) (*refusal, error) {
	who, err := g.tokens.Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("review of the token: %w", err)
	}
	if !who.Status.Authenticated {
		return &refusal{http.StatusUnauthorized, "the Kubernetes API does not know the token"}, nil
	}
	user := who.Status.User
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	may, err := g.access.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, Groups: user.Groups, UID: user.UID, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: Path, Verb: "get"},
	}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("review of what %s may do: %w", user.Username, err)
	}
	if !may.Status.Allowed {
		return &refusal{http.StatusForbidden,
				user.Username + " is not authorized to get " + Path +
					": bind it to the ClusterRole coelan-metrics-reader"},
			nil
	}
	return nil, nil
}
