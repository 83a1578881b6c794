"""The page's two drawings, as inline SVG: how the weight divides into verdicts, and what fixing images would give.

Colours are classes, since the page's security policy allows no style but its own sheet, and since there are two colour
schemes. What a drawing shows is also said in words: as its label, and in a table beside it.
"""

from collections.abc import Callable, Sequence
from typing import Final

from polyarch.reports.document import CurvePoint, TargetSums, Verdict
from polyarch.reports.page.markup import Markup, join, tag
from polyarch.reports.wording import counted, percent, steps

WIDTH: Final = 640
HEIGHT: Final = 240
LEFT, RIGHT, TOP, BOTTOM = 48, 16, 12, 36
POINTED_OUT: Final = 100
"""Points that say which image they are when pointed at; more are too narrow for that."""


def bar(parts: Sequence[tuple[Verdict, float]], words: str) -> Markup:
    """One bar, divided; ``words`` say what it shows."""
    total = sum(amount for _, amount in parts) or 1
    rectangles = []
    left = 0.0
    for verdict, amount in parts:
        width = amount * 100 / total
        if width:
            rectangles.append(
                tag("rect", class_=verdict, x=f"{left:.2f}", y=0, width=f"{max(width - 0.3, 0.1):.2f}", height=4)
            )
        left += width
    return tag(
        "svg",
        *rectangles,
        **{"class": "bar", "viewBox": "0 0 100 4", "preserveAspectRatio": "none", "role": "img", "aria-label": words},
    )


def curve(sums: TargetSums) -> Markup:
    """What could run on the target (upwards) after so many images are fixed (to the right)."""
    points = sums.curve
    most = max(points[-1].images, 1)
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(images: float) -> float:
        return round(LEFT + width * images / most, 1)

    def y(share: float) -> float:
        return round(TOP + height * (1 - min(max(share, 0), 1)), 1)

    line = f"M{x(points[0].images)} {y(points[0].share)}" + "".join(
        f"H{x(point.images)}V{y(point.share)}" for point in points[1:]
    )
    area = f"{line}V{y(0)}H{x(points[0].images)}Z"
    grid = [
        join(
            [
                tag("path", class_="grid", d=f"M{LEFT} {y(each / 100)}H{LEFT + width}"),
                _text(LEFT - 6, y(each / 100) + 4, f"{each} %", "end"),
            ]
        )
        for each in (0, 25, 50, 75, 100)
    ]
    ticks = [_text(x(step), HEIGHT - 18, str(step), "middle") for step in steps(most, 8)]
    return tag(
        "svg",
        *grid,
        *ticks,
        _text(LEFT + width / 2, HEIGHT - 3, "images fixed, the heaviest first", "middle"),
        tag("path", class_="area", d=area),
        tag("path", class_="line", d=line),
        *_pointed_out(points, x, height),
        **{"class": "curve", "viewBox": f"0 0 {WIDTH} {HEIGHT}", "role": "img", "aria-label": _words(sums)},
    )


def _words(sums: TargetSums) -> str:
    first, last = sums.curve[0], sums.curve[-1]
    return (
        f"Of the weight, {percent(first.share)} could run on {sums.target} with no image fixed, "
        f"{percent(last.share)} with {counted(last.images, 'image')} fixed"
    )


def _pointed_out(points: Sequence[CurvePoint], x: Callable[[float], float], height: float) -> list[Markup]:
    found = []
    for point, following in zip(points[:POINTED_OUT], [*points[1:POINTED_OUT], None], strict=False):
        end = x(following.images) if following else WIDTH - RIGHT
        said = f"{counted(point.images, 'image')}: {percent(point.share)}{f', with {point.image}' * bool(point.image)}"
        area = {"x": str(x(point.images)), "y": str(TOP), "height": str(height)}
        found.append(
            tag("g", tag("title", said), tag("rect", class_="point", width=max(end - x(point.images), 1), **area))
        )
    return found


def _text(x: float, y: float, text: str, anchor: str) -> Markup:
    return tag("text", text, **{"x": str(x), "y": str(y), "text-anchor": anchor})
